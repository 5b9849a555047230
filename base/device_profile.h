#pragma once
// A processor's figures for cost models and kernels: fixed, never timed, so that plans repeat exactly.

#include <array>
#include <cstddef>
#include <optional>
#include <string>

#include "base/device_kind.h"
#include "lenslet/numerics.h"

namespace lenslet {

struct DeviceProfile {
  DeviceKind kind = DeviceKind::cpu;
  std::string name;    ///< "cpu", "NVIDIA H200"
  int capability = 0;  ///< CUDA: 10 * major + minor of the compute capability
  int units = 1;       ///< the CPU: planned threads; CUDA: multiprocessors

  double fp32_flops_per_us = 50e3;  ///< multiply + add of IEEE singles, all units together
  double tf32_flops_per_us = 0;     ///< the same of TF32 products; 0: there are none
  double half_flops_per_us = 0;     ///< the same of 16-bit products, fp16 and bf16 alike; 0: there are none
  double bytes_per_us = 10e3;       ///< streaming from memory, all units together
  double launch_us = 0;             ///< of a kernel that has nothing to do

  std::size_t l2_bytes = 512 << 10;        ///< the CPU: of one core; CUDA: of the device
  std::size_t shared_bytes_per_block = 0;  ///< CUDA: that one block can ask for
  std::size_t shared_bytes_per_unit = 0;   ///< CUDA: of one multiprocessor
  bool clusters = false;                   ///< CUDA: thread-block clusters, and code for them in this build
  /// CUDA: multiprocessors that clusters of this many blocks occupy with one block each, if queried. It differs between
  /// chips, by their disabled multiprocessors. 0: unknown.
  std::array<int, 9> cluster_units{};
  bool quick_build = false;  ///< CUDA: this build has some of gemm_cute's kernels alone (LENSLET_CUDA_QUICK)
  std::string cublas_reason = "it is CUDA's";  ///< why cuBLAS cannot be used; empty when it can

  /// Why a block cannot have this much shared memory, or nothing.
  std::optional<std::string> refuse_shared(std::size_t bytes) const;

  double flops_per_us(Numerics::Multiply multiply) const {
    using Multiply = Numerics::Multiply;
    const double rate = multiply == Multiply::fp32   ? 0
                        : multiply == Multiply::tf32 ? tf32_flops_per_us
                                                     : half_flops_per_us;
    return rate > 0 ? rate : fp32_flops_per_us;
  }
};

/// The profile of this machine's CPU with `threads` threads, from its vector width alone.
DeviceProfile cpu_profile(int threads);

/// The GPU that cost models are fitted to and split-K is chosen for: an H200, 132 multiprocessors, without cuBLAS.
const DeviceProfile& reference_gpu();

namespace cuda {
/// The profile of a usable device: measured figures for known names, else device attributes scaled by what an H200
/// reaches of its own. Cached per process and device. Error(device). Only in builds with CUDA.
DeviceProfile device_profile(int device);
}  // namespace cuda

}  // namespace lenslet
