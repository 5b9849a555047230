// grouped_mma and grouped_tf32: refusals and filters. Launch: grouped_mma.cu; kernel: grouped_mma.cuh.

#include "base/convert.h"
#include "base/tf32.h"
#include "ops/conv/cuda/device_problem.h"
#include "ops/conv/cuda/grouped_mma_plan.h"
#include "ops/core/not_built.h"
#include "ops/core/sum_tolerance.h"

namespace lenslet::cuda {
namespace {

/// Of 16-bit types or, as TF32, of float32.
class GroupedConv final : public ConvAlgorithm {
 public:
  GroupedConv(std::string_view name, DTypeSet types) : name_(name), types_(types) {}
  std::string_view name() const override { return name_; }
  DeviceKind device() const override { return DeviceKind::cuda; }
  DTypeSet types() const override { return types_; }

 private:
  std::optional<std::string> refuse(const ConvProblem& p, const Target& target) const override {
    const bool tf32 = p.storage == DType::f32;
    if (tf32 && target.numerics.multiply != Numerics::Multiply::tf32)
      return "tensor cores would round float32 to TF32, which was not asked for";
    if (tf32 && target.device.capability < 80) return "it needs tensor cores of compute capability 8.0";
    if (p.groups == 1) return "one group";
    if (p.group_c() != p.group_k()) return "more channels than filters in a group, or fewer";
    if (p.group_c() % 4 != 0) return "the channels of a group are not a multiple of four";
    const std::int64_t eights = grouped_set_eights(p);
    if (eights == 0)
      return tf32 ? "groups that need more than eight eights of channels"
                  : "groups that need more than four eights of channels";
    if (p.c % (8 * eights) != 0) return "the last group fills no whole eight of channels";
    if (!fits_32_bits(p)) return "a tensor beyond 32-bit offsets";
    constexpr std::int64_t most = 64;
    if (p.stride_h > most || p.stride_w > most || (p.r - 1) * p.dilation_h > most || (p.s - 1) * p.dilation_w > most)
      return "a window or a stride beyond 64";
    const std::optional<GroupedTiling> tiling = plan_grouped(p, target.device);
    if (!tiling && !tf32) return target.device.refuse_shared(grouped_tilings(p).front().shared_bytes());
    if (!tiling) return "a tile's input with its halo does not fit into shared memory";
    if (tiling->blocks > 0x7fffff00) return "a tensor beyond 32-bit offsets";
    return std::nullopt;
  }

  ConvCandidate candidate(const ConvProblem& p, const Target& target) const override {
    const GroupedTiling tiling = plan_grouped(p, target.device).value();
    const std::int64_t gemm_k = p.group_c() * p.r * p.s;
    return {.pitched = true,
            .config = tiling.str(),
            .estimated_us = grouped_us(p, tiling, target.device),
            .tolerance = p.storage == DType::f32 ? tf32_sum_tolerance(gemm_k) + sum_tolerance(gemm_k)
                                                 : half_sum_tolerance(p.storage, gemm_k)};
  }

  FilterForm filter_form(const ConvProblem& p, std::string_view) const override {
    const GroupedFilters filters(p);
    return {.elements = filters.at(p.c / (8 * filters.eights), 0, 0, 0) * 4 / filters.element_bytes,
            .form = p.storage == DType::f32 ? "tf32 by sets" : std::string(to_string(p.storage)),
            .element_bytes = static_cast<std::size_t>(filters.element_bytes)};
  }

  void transform(const ConvProblem& p, std::string_view, const ConvFilter& filter,
                 std::span<std::byte> to) const override {
    dispatch(p.storage, Types<Float16, BFloat16, float>(), [&]<typename T>(std::type_identity<T>) {
      constexpr std::int64_t of_word = 4 / sizeof(T);
      const GroupedFilters filters(p);
      const std::int64_t channels = 8 * filters.eights;
      T* element = reinterpret_cast<T*>(to.data());
      for (std::int64_t first = 0; first < p.c; first += channels)
        for (std::int64_t step = 0; step < filters.steps(); ++step)
          for (std::int64_t r = 0; r < p.r; ++r)
            for (std::int64_t k = first; k < first + channels; k += 8)
              for (std::int64_t i = 0; i < 64 * of_word; ++i, ++element) {
                const std::int64_t lane = i / (2 * of_word), half = i / of_word % 2, of_lane = k + lane / 4;
                const std::int64_t s = filters.column(step, half);
                const std::int64_t c = first + filters.channel(step, half) + lane % 4 * of_word + i % of_word;
                const bool exists = s < p.s && c / p.group_c() == of_lane / p.group_k();
                const double weight = exists ? filter.exact_weight(of_lane, (c % p.group_c() * p.r + r) * p.s + s) : 0;
                if constexpr (is_half<T>)
                  *element = narrowed<T>(weight);
                else
                  *element = tf32_from_f64(weight);
              }
    });
  }

  std::unique_ptr<const BoundKernel> bind_conv(const ConvProblem& p, std::string_view config,
                                               const DeviceProfile& device) const override {
    const GroupedTiling tiling = read_grouped_tiling(p, config, device);
    if constexpr (cuda_built)
      return bind_grouped(p, tiling);
    else
      return not_built();
  }

  std::string_view name_;
  DTypeSet types_;
};

}  // namespace

const Kernel& conv_grouped_mma() {
  static const GroupedConv algorithm("grouped_mma", dtypes<Types<Float16, BFloat16>>);
  return algorithm;
}

const Kernel& conv_grouped_tf32() {
  static const GroupedConv algorithm("grouped_tf32", dtypes<Types<float>>);
  return algorithm;
}

}  // namespace lenslet::cuda
