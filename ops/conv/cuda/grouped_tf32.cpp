// grouped_tf32: refusals and filters. Launch and kernel: grouped_tf32.cu.

#include "base/tf32.h"
#include "ops/conv/cuda/device_problem.h"
#include "ops/conv/cuda/grouped_tf32_plan.h"
#include "ops/core/not_built.h"
#include "ops/core/sum_tolerance.h"

namespace lenslet::cuda {
namespace {

class GroupedTf32Conv final : public ConvAlgorithm {
 public:
  std::string_view name() const override { return "grouped_tf32"; }
  DeviceKind device() const override { return DeviceKind::cuda; }

 private:
  std::optional<std::string> refuse(const ConvProblem& p, const Target& target) const override {
    if (target.numerics.multiply != Numerics::Multiply::tf32)
      return "tensor cores would round float32 to TF32, which was not asked for";
    if (target.device.capability < 80) return "it needs tensor cores of compute capability 8.0";
    if (p.groups == 1) return "one group";
    if (p.group_c() != p.group_k()) return "more channels than filters in a group, or fewer";
    if (p.group_c() % 4 != 0) return "the channels of a group are not a multiple of four";
    const std::int64_t eights = grouped_tf32_set_eights(p);
    if (eights == 0) return "groups that need more than eight eights of channels";
    if (p.c % (8 * eights) != 0) return "the last group fills no whole eight of channels";
    if (!fits_32_bits(p)) return "a tensor beyond 32-bit offsets";
    constexpr std::int64_t most = 64;
    if (p.stride_h > most || p.stride_w > most || (p.r - 1) * p.dilation_h > most || (p.s - 1) * p.dilation_w > most)
      return "a window or a stride beyond 64";
    const std::optional<GroupedTf32Tiling> tiling = plan_grouped_tf32(p, target.device);
    if (!tiling) return "a tile's input with its halo does not fit into shared memory";
    if (tiling->blocks > 0x7fffff00) return "a tensor beyond 32-bit offsets";
    return std::nullopt;
  }

  Plan plan(const ConvProblem& p, const Target& target) const override {
    const GroupedTf32Tiling tiling = plan_grouped_tf32(p, target.device).value();
    const std::int64_t gemm_k = p.group_c() * p.r * p.s;
    return {.pitched = true,
            .config = tiling.str(),
            .estimated_us = grouped_tf32_us(p, tiling, target.device),
            .tolerance = tf32_sum_tolerance(gemm_k) + sum_tolerance(gemm_k)};
  }

  FilterForm filter_form(const ConvProblem& p, std::string_view) const override {
    return {.elements = p.k * p.s * p.r * grouped_tf32_set_eights(p) * 8, .form = "tf32 by sets"};
  }

  void transform(const ConvProblem& p, std::string_view, const ConvFilter& filter,
                 std::span<std::byte> bytes) const override {
    const std::span<float> to = as_floats(bytes);
    const GroupedTf32Filters filters(p);
    const std::int64_t set_channels = 8 * filters.eights;
    for (std::int64_t set = 0; set < p.c / set_channels; ++set)
      for (std::int64_t s = 0; s < p.s; ++s)
        for (std::int64_t from = 0; from < filters.eights; ++from)
          for (std::int64_t r = 0; r < p.r; ++r)
            for (std::int64_t into = 0; into < filters.eights; ++into) {
              float* next = to.data() + filters.at(set, s, from, r, into);
              for (std::int64_t lane = 0; lane < 32; ++lane)
                for (std::int64_t half = 0; half < 2; ++half) {
                  const std::int64_t k = set * set_channels + 8 * into + lane / 4;
                  const std::int64_t c = set * set_channels + 8 * from + lane % 4 + 4 * half;
                  const bool same_group = c / p.group_c() == k / p.group_k();
                  *next++ =
                      same_group ? tf32_from_f64(filter.exact_weight(k, (c % p.group_c() * p.r + r) * p.s + s)) : 0.0F;
                }
            }
  }

  std::unique_ptr<const BoundKernel> bind_conv(const ConvProblem& p, std::string_view config,
                                               const DeviceProfile& device) const override {
    const GroupedTf32Tiling tiling = read_grouped_tf32_tiling(p, config, device);
    if constexpr (cuda_built)
      return bind_grouped_tf32(p, tiling);
    else
      return not_built();
  }
};

}  // namespace

const Kernel& conv_grouped_tf32() {
  static const GroupedTf32Conv algorithm;
  return algorithm;
}

}  // namespace lenslet::cuda
