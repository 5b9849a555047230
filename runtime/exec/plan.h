#pragma once
// Everything decided before the first run: the final graph, kernels bound to their problems, packed weights, and each
// value's offset in the arena.

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
  std::shared_ptr<const BoundKernel> kernel;  ///< null: the step does not run
  std::shared_ptr<const void> blob;           ///< packed weights on the plan's device, or null
  std::size_t blob_bytes = 0;
  std::size_t workspace_offset = 0, workspace_bytes = 0;
  /// For the first step of a band: runs this step and those up to `band_last`.
  std::shared_ptr<const BandRun> band;
  NodeId band_last = no_id;
};

struct Plan {
  Graph graph;                           ///< final: after all passes
  std::vector<PlanStep> steps;           ///< one a node, same order
  std::vector<std::size_t> offsets;      ///< by ValueId; Placement::npos for constants
  std::vector<ValueId> roots;            ///< by ValueId: the value that owns its block
  std::vector<const Tensor*> constants;  ///< by ValueId: the constant it is an alias of, or null
  std::vector<Tensor> input_values;      ///< by input: PlanOptions::input_values, owned; empty() if not fixed
  /// CUDA plans, by ValueId: device address of `constants`. Null where no step reads it.
  std::vector<std::shared_ptr<const void>> device_constants;
  std::vector<EarlyWeights> early_weights;  ///< of a CUDA plan
  DeviceChoice device;
  DeviceProfile profile;
  bool needs_cublas = false, sync_each_step = false, flush_denormals = false;
  std::size_t arena_bytes = 0;
  std::shared_ptr<Allocator> allocator;  ///< of the arena; null: our own
  /// Where shapes depend on computed data: the rest of the network and its planning options. By output of `graph`:
  /// whether only that rest reads it, on the device that computed it.
  std::shared_ptr<const LatePart> late;
  PlanOptions late_options;
  std::vector<bool> stays_on_device;
  PlanInfo info;

  /// Constants read by steps that run, each once: those a plan uploads to its device.
  std::vector<ValueId> read_constants() const;
  /// The constant read by a step that runs; no_id: none.
  ValueId largest_constant(const PlanStep& step) const;
  /// By step.
  std::vector<StepWeights> step_weights() const;
};

/// Kinds: invalid_argument, invalid_model, unsupported, device. Thread-safe for one `model`. `pool` packs weights and
/// will run the plan; if null, a CPU plan creates it.
std::shared_ptr<const Plan> make_plan(ModelImpl& model, const PlanOptions& options, std::shared_ptr<ThreadPool>& pool);
/// The description of such a plan, with nothing bound, packed or uploaded. Errors as for make_plan, except out of
/// memory.
PlanInfo describe_plan(ModelImpl& model, const PlanOptions& options);

}  // namespace lenslet
