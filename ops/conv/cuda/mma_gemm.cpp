// mma_gemm: refusals and filters. Launch and kernel: mma_gemm.cu.

#include <cstring>

#include "base/convert.h"
#include "base/tf32.h"
#include "ops/conv/cuda/implicit_gemm_plan.h"
#include "ops/conv/cuda/mma_gemm_plan.h"
#include "ops/core/not_built.h"
#include "ops/core/sum_tolerance.h"

namespace lenslet::cuda {
namespace {

/// The largest tile's.
constexpr std::size_t most_shared_bytes = mma_shared_bytes<MmaTraits<MmaTile::t128x128>>();

class MmaGemmConv final : public ConvAlgorithm {
 public:
  std::string_view name() const override { return "mma_gemm"; }
  DeviceKind device() const override { return DeviceKind::cuda; }
  DTypeSet types() const override { return dtypes<Types<float, Float16, BFloat16>>; }

 private:
  std::optional<std::string> refuse(const ConvProblem& p, const Target& target) const override {
    if (p.storage == DType::f32 && target.numerics.multiply != Numerics::Multiply::tf32)
      return "tensor cores would round float32 to TF32, which was not asked for";
    if (target.device.capability < 80) return "it needs tensor cores of compute capability 8.0";
    if (auto reason = target.device.refuse_shared(most_shared_bytes)) return reason;
    if (auto reason = refuse_gathered_sizes(p, mma_block_k(p))) return reason;
    const ConvProblem merged = with_merged_groups(p);
    if (merged.group_k() > (1 << 30) / mma_filter_pitch(merged)) return "more than 2^30 weights in a group";
    return std::nullopt;
  }

  ConvCandidate candidate(const ConvProblem& p, const Target& target) const override {
    const ConvProblem merged = with_merged_groups(p);
    return candidate_of(merged, plan_mma_gemm(merged, target.device.clusters), p.group_c() * p.r * p.s, target);
  }
  std::vector<ConvCandidate> candidates(const ConvProblem& p, const Target& target) const override {
    const ConvProblem merged = with_merged_groups(p);
    return candidates_of(
        mma_gemm_tilings(merged, target.device.clusters),
        [&](const auto& tiling) { return mma_gemm_us(merged, tiling, reference_gpu()); },
        [&](const auto& tiling) { return candidate_of(merged, tiling, p.group_c() * p.r * p.s, target); });
  }

  static ConvCandidate candidate_of(const ConvProblem& merged, MmaGemmPlan tiling, std::int64_t gemm_k,
                                    const Target& target) {
    if (tiling.split_k > 1) tiling.resident = even_resident(merged, tiling, target.device);
    return {.format = formats::nhwc,
            .pitched = true,
            .config = tiling.str(),
            .estimated_us = mma_gemm_us(merged, tiling, target.device),
            .tolerance = merged.storage == DType::f32 ? tf32_sum_tolerance(gemm_k) + sum_tolerance(gemm_k)
                                                      : half_sum_tolerance(merged.storage, gemm_k)};
  }

  FilterForm filter_form(const ConvProblem& p, std::string_view) const override {
    return {.elements = p.k * mma_filter_pitch(with_merged_groups(p)),
            .form = std::string(to_string(p.storage)),
            .element_bytes = dtype_bytes(p.storage)};
  }

  void transform(const ConvProblem& p, std::string_view, const ConvFilter& filter,
                 std::span<std::byte> to) const override {
    std::memset(to.data(), 0, to.size());
    const ConvProblem merged = with_merged_groups(p);
    const std::int64_t taps = p.r * p.s, c = p.group_c(), merged_c = merged.group_c(), pitch = mma_filter_pitch(merged);
    const auto write = [&]<typename T>(T* first, const auto& rounded) {
      for (std::int64_t k = 0; k < p.k; ++k) {
        const std::int64_t first_c = k / p.group_k() * c % merged_c;  // its group within the merged ones
        for (std::int64_t in = 0; in < c; ++in)
          for (std::int64_t tap = 0; tap < taps; ++tap)
            first[k * pitch + tap * merged_c + first_c + in] = rounded(filter.exact_weight(k, in * taps + tap));
      }
    };
    if (p.storage == DType::f16)
      write(reinterpret_cast<std::uint16_t*>(to.data()), f16_from_f64);
    else if (p.storage == DType::bf16)
      write(reinterpret_cast<std::uint16_t*>(to.data()), bf16_from_f64);
    else
      write(reinterpret_cast<float*>(to.data()), tf32_from_f64);
  }

  std::unique_ptr<const BoundKernel> bind_conv(const ConvProblem& p, std::string_view config,
                                               const DeviceProfile& device) const override {
    const ConvProblem merged = with_merged_groups(p);
    const MmaGemmPlan plan = read_mma_gemm_plan(merged, config, device.clusters);
    if constexpr (cuda_built)
      return bind_mma_gemm(merged, plan, device);
    else
      return not_built();
  }
};

}  // namespace

const Kernel& conv_mma_gemm() {
  static const MmaGemmConv algorithm;
  return algorithm;
}

}  // namespace lenslet::cuda
