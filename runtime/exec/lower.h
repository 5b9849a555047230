#pragma once
// Lowers the loaded graph to the executed graph: types, shapes, then the passes.

#include <memory>
#include <string>

#include "base/device_profile.h"
#include "lenslet/device.h"
#include "lenslet/model.h"
#include "runtime/exec/model_impl.h"
#include "runtime/graph/late.h"

namespace lenslet {

/// Of a device name already resolved.
inline DeviceKind device_kind(const DeviceChoice& device) {
  return device.is_cuda() ? DeviceKind::cuda : DeviceKind::cpu;
}

/// Threads as asked for, or the cores available. Error(invalid_argument) outside 0..1024.
int resolve_threads(int threads);

/// The device profile that kernels see, with the thread count of `options`. Error(device).
DeviceProfile profile_of(const DeviceChoice& device, const PlanOptions& options);

/// `graph` after the passes that come before inference.
void apply_early_passes(Graph& graph);

/// Runs binding, inference and the passes up to and including `stage` ("load", "infer", a pass; "" or "plan": all).
/// `device` is what options.device stands for, `profile` what profile_of() says of it. Where shapes depend on computed
/// data, `graph` ends and the rest is `late`.
struct Lowered {
  Graph graph;
  std::shared_ptr<const LatePart> late = {};
  Numerics numerics = {};  ///< what `options` ask for; else, on CUDA, what the file computes in
};
Lowered lower(ModelImpl& model, const PlanOptions& options, const DeviceChoice& device, const DeviceProfile& profile,
              const std::string& stage = {});

}  // namespace lenslet
