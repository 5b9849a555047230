#pragma once
// The launch of neighbour_tiles and neighbour_mma.

#include <cassert>
#include <string>

#include "base/cuda/vector.cuh"
#include "ops/sparse/cuda/neighbour_kernel.h"
#include "ops/sparse/cuda/neighbours.cuh"
#include "ops/sparse/cuda/sparse_conv_cuda.h"

namespace lenslet::cuda {

using NeighbourFunction = void (*)(NeighbourCall);

class BoundNeighbours final : public BoundKernel {
 public:
  BoundNeighbours(const NeighbourLaunch& of, NeighbourFunction function)
      : p_(of.problem),
        plan_(of.plan),
        aligned_(of.aligned()),
        function_(function),
        call_(of.problem, of.length, of.plan, of.arithmetic) {
    call_.early = of.known;
  }

  void run(const KernelRun& run) const override {
    NeighbourCall call = call_;
    set_addresses(call, run);
    call.table = run.in<std::int32_t>(SparseConvOp::neighbours);
    assert(!aligned_ || quad_aligned(call.x));
    call.store_fours = p_.filters % 4 == 0 && quad_aligned(call.y, call.residual, call.bias);
    const std::size_t shared_bytes = plan_.shared_bytes(p_.taps, call.chunks);
    allow_shared_bytes(function_, shared_bytes);
    launch(*run.cuda, function_,
           dim3(static_cast<unsigned>(plan_.blocks(p_)), static_cast<unsigned>(plan_.tiles_n(p_))),
           static_cast<unsigned>(32 * plan_.warps), shared_bytes, call);
  }
  std::string fault() const override { return rulebook_fault(p_); }

 private:
  SparseConvProblem p_;
  NeighbourPlan plan_;
  bool aligned_;
  NeighbourFunction function_;
  NeighbourCall call_;
};

/// Null where there is no `function`.
inline std::unique_ptr<const BoundKernel> bound_neighbours(const NeighbourLaunch& of, NeighbourFunction function) {
  if (function == nullptr) return nullptr;
  return std::make_unique<BoundNeighbours>(of, function);
}

}  // namespace lenslet::cuda
