#pragma once
// gemm_cute: matrix products on tensor cores, written with CuTe (the header library of NVIDIA's CUTLASS). Plain C++:
// included where there is no CUDA, and no CUTLASS, too. Read gemm_cute_mma.cu first, then gemm_cute_sm90.cuh.

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

/// Were the kernels compiled? They need the headers of CUTLASS (cmake/LensletCutlass.cmake) beside nvcc.
bool cute_built();

/// What a product's cost and cut depend on: y[m,n] out of A [m,k] and B [k,n], `batch` times.
struct CuteProblem {
  /// The operands' type says the arithmetic but for f32, which is multiplied in fp32 or, rounded to nearest, in tf32.
  Numerics::Multiply multiply = Numerics::Multiply::fp32;
  DType y_type = DType::f32;  ///< f32, or the 16-bit type of the operands
  std::int64_t m = 1, n = 1, k = 1, batch = 1;
  bool b_transposed = true;  ///< B lies as [n,k], else as [k,n]
  /// Both operands lie on 16 bytes, and so do their rows and matrices: what copies of 16 bytes and TMA want.
  bool aligned = true;

  std::size_t element_bytes() const;
  double flops() const;
  double bytes() const;  ///< of A, B and y, each once
};

/// How it is cut: which core multiplies, the tile of y that a block makes at a time, into how many slices k is cut, and
/// what the blocks of a cluster have to do with each other. Slices are summed up in their order, by a kernel of their
/// own or within a cluster: same inputs, same bits.
struct CutePlan {
  enum class Core : std::uint8_t {
    wgmma,  ///< Hopper's: TMA, mbarriers, a persistent block on each multiprocessor
    mma,    ///< from Ampere on: cp.async, ldmatrix, mma.sync; of fp32: fma
  };
  Core core = Core::mma;
  int tile_m = 64, tile_n = 64;
  /// Blocks of a cluster (wgmma alone). 2 with one slice: their tiles lie side by side, and what they share of an
  /// operand is brought once. As many as there are slices, 2, 4 or 8: each sums up one slice of the same tile, and they
  /// add what they have out of each other's shared memory.
  int cluster = 1;
  std::int64_t slices = 1;

  /// Are the slices the blocks of a cluster?
  bool joined() const { return slices > 1 && cluster > 1; }
  /// "core=wgmma tile=128x256 cluster=2 slices=1", "core=mma tile=64x64 slices=1".
  void write(ConfigWriter& config) const;
  /// The reverse; the reader refuses what cannot compute the problem on a device.
  static CutePlan read(ConfigReader& config, const CuteProblem& problem);
  friend bool operator==(const CutePlan&, const CutePlan&) = default;
};

/// Elements of k that a step of a block takes: 128 bytes a row.
constexpr std::int64_t cute_tile_k(std::size_t element_bytes) { return 128 / static_cast<std::int64_t>(element_bytes); }

/// Why it cannot be computed here at all: what the build or the device lacks, or a size. Empty: it can.
std::string cute_refusal(const CuteProblem& problem, const DeviceProfile& device);
/// Every plan that computes it there. Not empty unless it is refused.
std::vector<CutePlan> cute_plans(const CuteProblem& problem, const DeviceProfile& device);
/// What a plan takes, by the model in plan.cpp.
double cute_plan_us(const CuteProblem& problem, const CutePlan& plan, const DeviceProfile& device);
/// The one of them that takes the least on the reference_gpu(), by the same model; the first of equals.
CutePlan plan_cute(const CuteProblem& problem, const DeviceProfile& device);
/// Sums of slices that a kernel of its own adds.
std::size_t cute_workspace_bytes(const CuteProblem& problem, const CutePlan& plan);

/// Rows `ld` elements apart, matrices of the batch `step` elements; step 0: the same for all.
struct CuteOperand {
  const void* data = nullptr;
  std::int64_t ld = 0, step = 0;
};

/// y = activation(alpha * A * B + beta * c[i * c_row + j * c_col] + residual), in fp32 up to the last rounding. All
/// pointers are on the device; y overlaps no operand, but may be the residual.
struct CuteCall {
  CuteProblem problem;
  CuteOperand a, b;
  bool b_known =
      false;  ///< B was on the device before the network ran, so that it may be read before earlier kernels end
  float alpha = 1, beta = 1;
  const float* c = nullptr;  ///< null: none; the same for all products
  std::int64_t c_row = 0, c_col = 0;
  const void* residual = nullptr;  ///< null: none; of y's type, and lies as y does
  Activation activation = {};
  void* y = nullptr;  ///< matrices without a gap, one after another
  float* workspace = nullptr;
};

/// Queues a call. Error(device).
void gemm_cute(const Context& context, const CuteCall& call, const CutePlan& plan);

}  // namespace lenslet::cuda
