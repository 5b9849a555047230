#pragma once
// gemm_cute: matrix products on tensor cores, written in CuTe (part of NVIDIA's CUTLASS). Plain C++: also included
// without CUDA or CUTLASS. Read gemm_cute_mma.cu first, then gemm_cute_sm90.cuh.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/device_profile.h"
#include "lenslet/tensor.h"
#include "ops/core/op.h"

namespace lenslet {
class ConfigReader;
class ConfigWriter;
}  // namespace lenslet

namespace lenslet::cuda {

struct Context;

/// True if the kernels were compiled, which needs nvcc and CUTLASS's headers (cmake/LensletCutlass.cmake).
bool cute_built();

/// What a product's cost and configuration depend on: y[m,n] from A [m,k] and B [k,n], `batch` times.
struct CuteProblem {
  /// Only f32 has a choice of arithmetic: fp32, or TF32 with operands rounded to nearest.
  Numerics::Multiply multiply = Numerics::Multiply::fp32;
  DType y_type = DType::f32;  ///< f32, or the 16-bit type of the operands
  std::int64_t m = 1, n = 1, k = 1, batch = 1;
  bool b_transposed = true;  ///< B is [n,k], else [k,n]
  /// Base addresses, rows and matrices of both operands are 16-byte aligned, as 16-byte copies and TMA require.
  bool aligned = true;

  std::size_t element_bytes() const;
  double flops() const;
  double bytes() const;  ///< of A, B and y, each once
};

/// A configuration: arithmetic unit, block tile of y, split-K factor, and the role of a cluster. Splits are
/// added in order, by a second kernel or within a cluster: same inputs, same bits.
struct CutePlan {
  enum class Core : std::uint8_t {
    wgmma,  ///< Hopper's: TMA, mbarriers, a persistent block on each multiprocessor
    mma,    ///< from Ampere on: cp.async, ldmatrix, mma.sync; of fp32: fma
  };
  Core core = Core::mma;
  int tile_m = 64, tile_n = 64;
  /// Blocks per cluster (wgmma only). With 1 slice: 2 blocks with adjacent tiles that multicast the shared operand.
  /// With splits: 2, 4 or 8, one block per split of a tile, and they add their partial sums through distributed shared
  /// memory.
  int cluster = 1;
  std::int64_t split_k = 1;

  /// True for split-K over a cluster.
  bool joined() const { return split_k > 1 && cluster > 1; }
  /// "core=wgmma tile=128x256 cluster=2 split_k=1", "core=mma tile=64x64 split_k=1".
  void write(ConfigWriter& config) const;
  /// The reverse; throws for plans that cannot compute the problem on the device.
  static CutePlan read(ConfigReader& config, const CuteProblem& problem);
  friend bool operator==(const CutePlan&, const CutePlan&) = default;
};

/// Whether a build with LENSLET_CUDA_QUICK has the kernel of this tile: it is for CI, where no product runs, and has
/// each arithmetic and each branch once.
constexpr bool cute_in_quick_build(const CuteProblem& p, const CutePlan& plan) {
  using Multiply = Numerics::Multiply;
  if (plan.core == CutePlan::Core::mma) {
    if (!p.aligned || !p.b_transposed) return p.multiply == Multiply::fp32 || p.multiply == Multiply::bf16;
    return plan.tile_m == 64 ? p.multiply == Multiply::tf32 : p.multiply == Multiply::fp16;
  }
  if (!p.b_transposed) return p.multiply == Multiply::fp16 && plan.tile_m == 128 && plan.tile_n == 256;
  if (p.multiply == Multiply::fp16) return plan.tile_m == 128 && plan.tile_n == 128;
  return p.multiply == Multiply::bf16 ? plan.tile_m == 64 && plan.tile_n == 64 : plan.tile_m == 256;
}

/// k elements per main loop iteration of a block: 128 bytes per row.
constexpr std::int64_t cute_tile_k(std::size_t element_bytes) { return 128 / static_cast<std::int64_t>(element_bytes); }

/// Why the product cannot be computed here: a feature of build or device, or a size. Empty when it can.
std::string cute_refusal(const CuteProblem& problem, const DeviceProfile& device);
/// All valid plans. Not empty unless refused.
std::vector<CutePlan> cute_plans(const CuteProblem& problem, const DeviceProfile& device);
/// Estimated time of a plan (plan.cpp).
double cute_plan_us(const CuteProblem& problem, const CutePlan& plan, const DeviceProfile& device);
/// The plan with the least estimate on the reference_gpu(); the first of equals.
CutePlan plan_cute(const CuteProblem& problem, const DeviceProfile& device);
/// Bytes for the partial sums of split-K with a second kernel.
std::size_t cute_workspace_bytes(const CuteProblem& problem, const CutePlan& plan);

/// Rows are `ld` elements apart, matrices of the batch `step`; step 0: one matrix for all.
struct CuteOperand {
  const void* data = nullptr;
  std::int64_t ld = 0, step = 0;
};

/// y = activation(alpha * A * B + beta * c[i * c_row + j * c_col] + residual), in fp32 until the final rounding. All
/// pointers are device memory; y overlaps no operand, but may be the residual.
struct CuteCall {
  CuteProblem problem;
  CuteOperand a, b;
  bool b_known =
      false;  ///< B was on the device before the network ran, so that it may be read before earlier kernels end
  float alpha = 1, beta = 1;
  const float* c = nullptr;  ///< null: none; the same for all products
  std::int64_t c_row = 0, c_col = 0;
  const void* residual = nullptr;  ///< null: none; y's type and layout
  Activation activation = {};
  void* y = nullptr;  ///< matrices without a gap, one after another
  float* workspace = nullptr;
};

/// Queues a call. Error(device).
void gemm_cute(const Context& context, const CuteCall& call, const CutePlan& plan);

}  // namespace lenslet::cuda
