#pragma once
// The graph passes: the ordered list, and what each does. One file and one test each.

#include <span>
#include <string>
#include <string_view>

#include "ops/conv/choose.h"
#include "runtime/graph/graph.h"

namespace lenslet {

struct PassContext {
  DeviceKind device = DeviceKind::cpu;
  MachineRates rates;
  std::string forced_algorithm;
  bool forced_where_accepted = false;
};

struct Pass {
  std::string_view name;
  void (*run)(Graph& graph, const PassContext& context);
  bool optional = true;      ///< false: the executor needs it; it cannot be disabled
  std::string_view summary;  ///< one line for docs and `inspect`
};

/// In the order they run.
std::span<const Pass> passes();

void fold_constants(Graph& graph, const PassContext& context);
void drop_identity(Graph& graph, const PassContext& context);
void cancel_transposes(Graph& graph, const PassContext& context);
void fold_pad(Graph& graph, const PassContext& context);
void fold_batch_norm(Graph& graph, const PassContext& context);
void fold_scale(Graph& graph, const PassContext& context);
void fuse_activation(Graph& graph, const PassContext& context);
void fuse_residual(Graph& graph, const PassContext& context);
void choose_conv_algorithms(Graph& graph, const PassContext& context);
void assign_layout(Graph& graph, const PassContext& context);
void insert_padding(Graph& graph, const PassContext& context);
void drop_dead(Graph& graph, const PassContext& context);

}  // namespace lenslet
