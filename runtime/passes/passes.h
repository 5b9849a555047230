#pragma once
// The graph passes: the ordered list, and what each does. One file and one test each.

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ops/core/choose.h"
#include "runtime/graph/graph.h"

namespace lenslet {

struct PassContext {
  Target target;
  std::string device = "cpu";  ///< for messages: "cuda:0"
  /// The 16-bit precision is the file's own, not requested, and applies only to values that are 16-bit in the file.
  bool types_of_file = false;
  /// PlanOptions::conv_algorithm, conv_algorithm_where_accepted and layer_algorithms.
  std::string forced_algorithm = {};
  bool forced_where_accepted = false;
  std::vector<std::pair<std::string, std::string>> layer_algorithms = {};
};

struct Pass {
  std::string_view name;
  void (*run)(Graph& graph, const PassContext& context);
  bool optional = true;      ///< false: the executor needs it; it cannot be disabled
  std::string_view summary;  ///< one line for docs and `inspect`
};

/// In the order they run. The first one comes before shapes are inferred, the others after.
std::span<const Pass> passes();
/// The number of passes before inference.
inline constexpr std::size_t passes_before_inference = 1;

void widen(Graph& graph, const PassContext& context);
void expand_einsum(Graph& graph, const PassContext& context);
void fuse_layer_norm(Graph& graph, const PassContext& context);
void fuse_group_norm(Graph& graph, const PassContext& context);
void batch_first(Graph& graph, const PassContext& context);
void fuse_attention(Graph& graph, const PassContext& context);
void fuse_windows(Graph& graph, const PassContext& context);
void matmul_to_conv(Graph& graph, const PassContext& context);
void patch_embedding(Graph& graph, const PassContext& context);
void conv1d_to_conv2d(Graph& graph, const PassContext& context);
void fold_constants(Graph& graph, const PassContext& context);
void drop_identity(Graph& graph, const PassContext& context);
void unflatten_transposes(Graph& graph, const PassContext& context);
void cancel_transposes(Graph& graph, const PassContext& context);
void lower_quantized(Graph& graph, const PassContext& context);
void find_shuffles(Graph& graph, const PassContext& context);
void sum_branches(Graph& graph, const PassContext& context);
void common_factor(Graph& graph, const PassContext& context);
void fuse_response_norm(Graph& graph, const PassContext& context);
void fold_pad(Graph& graph, const PassContext& context);
void crop_filters(Graph& graph, const PassContext& context);
void fold_batch_norm(Graph& graph, const PassContext& context);
void fold_scale(Graph& graph, const PassContext& context);
void merge_branches(Graph& graph, const PassContext& context);
void fuse_activation(Graph& graph, const PassContext& context);
void fuse_residual(Graph& graph, const PassContext& context);
void fold_input_scale(Graph& graph, const PassContext& context);
void fuse_pool_difference(Graph& graph, const PassContext& context);
void fuse_elementwise(Graph& graph, const PassContext& context);
void join_slices(Graph& graph, const PassContext& context);
void drop_dead(Graph& graph, const PassContext& context);
void assign_types(Graph& graph, const PassContext& context);
void choose_kernels(Graph& graph, const PassContext& context);
void assign_formats(Graph& graph, const PassContext& context);
void merge_moves(Graph& graph, const PassContext& context);
void fuse_pool(Graph& graph, const PassContext& context);
void fuse_preactivation(Graph& graph, const PassContext& context);
void fuse_separable(Graph& graph, const PassContext& context);
void share_neighbours(Graph& graph, const PassContext& context);
void place_parts(Graph& graph, const PassContext& context);
void choose_bands(Graph& graph, const PassContext& context);

}  // namespace lenslet
