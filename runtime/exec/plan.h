#pragma once
// Everything decided before the first run: the final graph, kernels bound to their problems, prepared weights, and a
// place in the arena for each value.

#include <cstddef>
#include <memory>
#include <vector>

#include "base/thread_pool.h"
#include "lenslet/device.h"
#include "lenslet/model.h"
#include "runtime/exec/band_run.h"
#include "runtime/exec/early_weights.h"
#include "runtime/exec/model_impl.h"
#include "runtime/graph/graph.h"
#include "runtime/graph/late.h"

namespace lenslet {

struct PlanStep {
  NodeId node = no_id;
  bool runs = true;  ///< false: the output only renames its input's bytes
  std::shared_ptr<const Problem> problem;
  std::shared_ptr<const BoundKernel> kernel;  ///< null: it does not run
  std::shared_ptr<const void> blob;           ///< prepared weights on the plan's device, or null
  std::size_t blob_bytes = 0;
  std::size_t workspace_offset = 0, workspace_bytes = 0;
  /// Of the first step of a band: runs this and the following ones, up to `band_last`.
  std::shared_ptr<const BandRun> band;
  NodeId band_last = no_id;
};

struct Plan {
  Graph graph;                           ///< final: after all passes
  std::vector<PlanStep> steps;           ///< one a node, same order
  std::vector<std::size_t> offsets;      ///< by ValueId; Placement::npos for constants
  std::vector<ValueId> roots;            ///< by ValueId: the value whose block it lies in
  std::vector<const Tensor*> constants;  ///< by ValueId: the constant behind it (through renamings), or null
  std::vector<Tensor> input_values;      ///< by input: PlanOptions::input_values, owned; empty() where it is free
  /// Of a CUDA plan, by ValueId: device address of the constant behind it. Null where no step reads it there.
  std::vector<std::shared_ptr<const void>> device_constants;
  std::vector<EarlyWeights> early_weights;  ///< of a CUDA plan
  DeviceChoice device;
  DeviceProfile profile;
  bool needs_cublas = false, sync_each_step = false, flush_denormals = false;
  std::size_t arena_bytes = 0;
  std::shared_ptr<Allocator> allocator;  ///< of the arena; null: ours
  /// Where shapes follow from what is computed: the rest of the network, and how it is to be planned. By output of
  /// `graph`, whether only that rest reads it, where it was computed.
  std::shared_ptr<const LatePart> late;
  PlanOptions late_options;
  std::vector<bool> stays_on_device;
  PlanInfo info;

  /// Those that steps which run read, each once: what a plan for a device takes there.
  std::vector<ValueId> read_constants() const;
  /// That a step which runs reads; no_id: none.
  ValueId largest_constant(const PlanStep& step) const;
  /// By step.
  std::vector<StepWeights> step_weights() const;
};

/// Kinds: invalid_argument, invalid_model, unsupported, device. Thread-safe for one `model`. `pool` prepares weights
/// and will run the plan: where it is null, a plan for the CPU makes it.
std::shared_ptr<const Plan> make_plan(ModelImpl& model, const PlanOptions& options, std::shared_ptr<ThreadPool>& pool);
/// What such a plan says of itself, with nothing bound, prepared or uploaded. Errors as of make_plan, but those of
/// memory that would be short.
PlanInfo describe_plan(ModelImpl& model, const PlanOptions& options);

}  // namespace lenslet
