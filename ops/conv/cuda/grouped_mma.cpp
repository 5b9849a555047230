// grouped_mma: refusals, cost and filters. Kernel: grouped_mma.cu.

#include "ops/conv/cuda/grouped_mma.h"

#include <algorithm>
#include <cmath>

#include "base/convert.h"
#include "ops/conv/cuda/device_problem.h"
#include "ops/core/not_built.h"
#include "ops/core/sum_tolerance.h"

namespace lenslet::cuda {
namespace {

using namespace grouped_mma_sizes;

class GroupedMma final : public ConvAlgorithm {
 public:
  std::string_view name() const override { return "grouped_mma"; }
  DeviceKind device() const override { return DeviceKind::cuda; }
  DTypeSet types() const override { return dtypes<Types<Float16, BFloat16>>; }

 private:
  std::optional<std::string> refuse(const ConvProblem& p, const Target& target) const override {
    if (p.groups == 1) return "one group";
    if (p.group_c() != p.group_k()) return "more channels than filters in a group, or fewer";
    if (p.group_c() % 4 != 0) return "the channels of a group are not a multiple of four";
    if (p.group_c() > 32 || eights_of(p) > 4) return "groups that need more than four eights of channels";
    if (p.c % (8 * eights_of(p)) != 0) return "the last group fills no whole eight of channels";
    if (!fits_32_bits(p) || block_count(p, rows_together(p)) > 0x7fffff00) return "a tensor beyond 32-bit offsets";
    constexpr std::int64_t most = 64;
    if (p.stride_h > most || p.stride_w > most || (p.r - 1) * p.dilation_h > most || (p.s - 1) * p.dilation_w > most)
      return "a window or a stride beyond 64";
    return target.device.refuse_shared(static_cast<std::size_t>(HaloTile(p, rows_together(p)).bytes()));
  }

  /// The longer of memory and tensor cores, plus what it does not hide; blocks have whole tiles. Set by hand beside 10
  /// drawn layers and 31 of ResNeXts and RegNets (H100, 25 November 2026).
  Plan plan(const ConvProblem& p, const Target& target) const override {
    constexpr double start_us = 2.1, product_share = 0.3, unhidden = 0.35;
    const double memory_share = p.stride_h > 1 ? 0.75 : 0.58;
    const DeviceProfile& device = target.device;
    const int rows = rows_together(p);
    const double block =
        2.0 * tile_p * tile_q * static_cast<double>(chunk_of(p, rows)) * static_cast<double>(step_count(p) * p.r * 16);
    const double waves = std::ceil(block_count(p, rows) / device.units);
    const double products_us =
        waves * block * device.units / (product_share * device.flops_per_us(Numerics::Multiply::fp16));
    const double memory_us = p.bytes() / (memory_share * device.bytes_per_us);
    return {.pitched = true,
            .config = ConfigWriter().add("rows", std::int64_t{rows}).str(),
            .estimated_us = device.launch_us + start_us + std::max(memory_us, products_us) +
                            unhidden * std::min(memory_us, products_us),
            .tolerance = half_sum_tolerance(p.storage, p.group_c() * p.r * p.s)};
  }

  FilterForm filter_form(const ConvProblem& p, std::string_view) const override {
    return {.elements = p.k / 8 * step_count(p) * p.r * 32 * 4,
            .form = std::string(to_string(p.storage)),
            .element_bytes = 2};
  }

  void transform(const ConvProblem& p, std::string_view, const ConvFilter& filter,
                 std::span<std::byte> to) const override {
    const std::int64_t eights = eights_of(p), steps = step_count(p), steps_a_column = (eights + 1) / 2;
    dispatch(p.storage, Types<Float16, BFloat16>(), [&]<typename T>(std::type_identity<T>) {
      T* element = reinterpret_cast<T*>(to.data());
      for (std::int64_t first = 0; first < p.c; first += 8 * eights)
        for (std::int64_t step = 0; step < steps; ++step)
          for (std::int64_t r = 0; r < p.r; ++r)
            for (std::int64_t n = 0; n < eights; ++n)
              for (std::int64_t lane = 0; lane < 32; ++lane)
                for (std::int64_t i = 0; i < 4; ++i, ++element) {
                  const std::int64_t half = i / 2, k = first + 8 * n + lane / 4;
                  const std::int64_t s = eights == 1 ? 2 * step + half : step / steps_a_column;
                  const std::int64_t eight = eights == 1 ? 0 : step % steps_a_column * 2 + half;
                  const std::int64_t c = first + 8 * eight + lane % 4 * 2 + i % 2;
                  const bool exists = s < p.s && eight < eights && c / p.group_c() == k / p.group_k();
                  *element = narrowed<T>(exists ? filter.exact_weight(k, (c % p.group_c() * p.r + r) * p.s + s) : 0.0);
                }
    });
  }

  std::unique_ptr<const BoundKernel> bind_conv(const ConvProblem& p, std::string_view config,
                                               const DeviceProfile& device) const override {
    ConfigReader reader(config);
    const auto rows = static_cast<int>(reader.integer("rows", 1, 3));
    reader.finish();
    if (rows != 1 && rows != rows_together(p))
      reader.refuse("the kernel does not multiply this number of rows of taps at once");
    const HaloTile halo_tile(p, rows);
    if (const auto why = device.refuse_shared(static_cast<std::size_t>(halo_tile.bytes()))) reader.refuse(*why);
    if constexpr (cuda_built)
      return bind_grouped_mma(p, rows);
    else
      return not_built();
  }
};

}  // namespace

const Kernel& conv_grouped_mma() {
  static const GroupedMma algorithm;
  return algorithm;
}

}  // namespace lenslet::cuda
