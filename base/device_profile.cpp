#include "base/device_profile.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "base/device_profile.cpp"
// foreach_target.h must come before highway.h.
// clang-format off
#include "base/simd/targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace lenslet::HWY_NAMESPACE {
std::size_t float_lanes() { return hwy::HWY_NAMESPACE::Lanes(hwy::HWY_NAMESPACE::ScalableTag<float>()); }
}  // namespace lenslet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lenslet {

HWY_EXPORT(float_lanes);

std::optional<std::string> DeviceProfile::refuse_shared(std::size_t bytes) const {
  if (bytes <= shared_bytes_per_block) return std::nullopt;
  return fmt::format("a block needs {} KiB of shared memory, and the device gives {}", (bytes + 1023) >> 10,
                     shared_bytes_per_block >> 10);
}

namespace {

/// L2 of a core; 512 KiB where the system does not report it.
std::size_t l2_bytes() {
  const long said = ::sysconf(_SC_LEVEL2_CACHE_SIZE);
  return said >= 64 << 10 ? static_cast<std::size_t>(said) : 512 << 10;
}

}  // namespace

DeviceProfile cpu_profile(int threads) {
  // A core with two FMA units at 3.2 GHz, which AVX2 on Zen 3 reaches (104 GFLOP/s measured). Only the ratio to
  // bytes_per_us affects the choice, and the vector width dominates it.
  const auto lanes = static_cast<double>(HWY_DYNAMIC_DISPATCH(float_lanes)());
  DeviceProfile profile;
  profile.name = "cpu";
  profile.units = std::max(threads, 1);
  profile.fp32_flops_per_us = 12.8e3 * lanes * profile.units;
  // One core of that machine streams 15 GB/s from L3 and memory. 20 for AVX-512 fitted the choices inside networks on a
  // Zen 5 (a copy there moves 38). Beyond four cores they share the bandwidth.
  profile.bytes_per_us = (lanes < 16 ? 15e3 : 20e3) * std::min(profile.units, 4);
  profile.l2_bytes = l2_bytes();
  return profile;
}

const DeviceProfile& reference_gpu() {
  // H200: fp32 51, TF32 384, fp16 760 TFLOP/s in large products; 4.3 TB/s in a large copy.
  static const DeviceProfile profile{.kind = DeviceKind::cuda,
                                     .name = "NVIDIA H200",
                                     .capability = 90,
                                     .units = 132,
                                     .fp32_flops_per_us = 51e6,
                                     .tf32_flops_per_us = 384e6,
                                     .half_flops_per_us = 760e6,
                                     .bytes_per_us = 4.3e6,
                                     .launch_us = 1.0,
                                     .l2_bytes = 50 << 20,
                                     .shared_bytes_per_block = 227 << 10,
                                     .shared_bytes_per_unit = 228 << 10,
                                     .clusters = true,
                                     .cublas_reason = "not asked for"};
  return profile;
}

}  // namespace lenslet
#endif
