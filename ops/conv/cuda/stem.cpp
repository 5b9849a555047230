// stem: refusals, cost and filters. Kernels: stem.cu, stem_pool.cu.

#include "ops/conv/cuda/stem.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/aligned_format.h"
#include "base/convert.h"
#include "base/cuda/has_wgmma.h"
#include "base/tf32.h"
#include "ops/conv/cuda/device_problem.h"
#include "ops/core/not_built.h"
#include "ops/core/sum_tolerance.h"

namespace lenslet::cuda {
namespace {

using namespace stem_sizes;

StemPlan read_plan(const ConvProblem& p, std::string_view config) {
  ConfigReader reader(config);
  StemPlan plan{reader.integer("filters", 32, 64), reader.integer("resident", 1, 16), false};
  if (p.max_pool) plan.tiles = reader.integer("tiles", 1, 1 << 20);
  if (!reader.done()) {
    if (reader.word("by") != "wgmma") reader.refuse("there is no such instruction");
    plan.wgmma = true;
  }
  reader.finish();
  if (plan.filters != 32 && plan.filters != 64) reader.refuse("filters come in blocks of 32 or 64");
  return plan;
}

class Stem final : public ConvAlgorithm {
 public:
  std::string_view name() const override { return "stem"; }
  DeviceKind device() const override { return DeviceKind::cuda; }
  DTypeSet types() const override { return dtypes<Types<float, Float16, BFloat16>>; }

 private:
  bool reads_float32() const override { return true; }
  bool pools(const ConvProblem& p) const override {
    const MaxWindows& pool = p.max_pool;
    const std::int64_t pad = std::max({pool.pad_top, pool.pad_left, pool.pad_bottom, pool.pad_right});
    return pool.size == 3 && pool.stride == 2 && pad <= 2;
  }

  std::optional<std::string> refuse(const ConvProblem& p, const Target& target) const override {
    if (p.storage == DType::f32 && target.numerics.multiply != Numerics::Multiply::tf32)
      return "tensor cores would round float32 to TF32, which was not asked for";
    if (target.device.capability < 80) return "it needs tensor cores of compute capability 8.0";
    if (p.groups != 1) return "grouped filters";
    if (p.c > 4) return "more than four input channels";
    if (p.r > 11 || p.s > 11 || p.stride_h > 4 || p.stride_w > 4) return "a filter beyond 11x11 or a stride beyond 4";
    if (p.dilation_h != 1 || p.dilation_w != 1) return "dilated filters";
    if (p.residual) return "a residual: it is for first layers";
    if (!fits_32_bits(p) || p.k > 0xffff || tile_count(p) > 0x7fffff00) return "a tensor beyond 32-bit offsets";
    return target.device.refuse_shared(static_cast<std::size_t>(shared_bytes(p, 64)));
  }

  ConvCandidate candidate(const ConvProblem& p, const Target& target) const override {
    const DeviceProfile& device = target.device;
    const auto walks = walks_of(p, device, {p.k <= 32 ? 32 : 64, p.k <= 32 && !p.max_pool ? 5 : 4, has_wgmma(device)});
    return candidate_of(p, best_tiling(walks, [&](const auto& walk) { return walks_us(p, device, walk); }).value(),
                        target);
  }
  std::vector<ConvCandidate> candidates(const ConvProblem& p, const Target& target) const override {
    std::vector<ConvCandidate> candidates;
    for (const std::int64_t filters : {32, 64})
      for (std::int64_t resident = 1; resident <= 5; ++resident)
        for (const bool wgmma : {true, false})
          for (const StemPlan& tiling : walks_of(p, target.device, {filters, resident, wgmma}))
            if (tiling.resident == resident && (!wgmma || has_wgmma(target.device)))
              candidates.push_back(candidate_of(p, tiling, target));
    return by_time(std::move(candidates));
  }

  /// The longer of memory and tensor cores over whole tiles: first guesses. With max pooling, waves of walks.
  static ConvCandidate candidate_of(const ConvProblem& p, const StemPlan& tiling, const Target& target) {
    constexpr double start_us = 2, memory_share = 0.8, product_share = 0.4;
    const DeviceProfile& device = target.device;
    double tiles_us = 0;
    if (p.max_pool) {
      tiles_us = walks_us(p, device, tiling);
    } else {
      const double products = 2.0 * static_cast<double>(tile_count(p) * tile_p * tile_q) *
                              static_cast<double>(ceil_div(p.k, tiling.filters) * tiling.filters) *
                              static_cast<double>(step_count(p) * step_words * word_elems_of(p));
      const bool tf32 = p.storage == DType::f32;
      tiles_us =
          products / (product_share * device.flops_per_us(tf32 ? Numerics::Multiply::tf32 : Numerics::Multiply::fp16));
      // Every further block of filters loads all tiles again: 64x3x70x39, 4x4 s2, takes 8.6 us with 64, 14.3 with 128,
      // 52.3 with 512 filters (H200).
      constexpr double again_us = 1.0;
      tiles_us += again_us * static_cast<double>((ceil_div(p.k, tiling.filters) - 1) * tile_count(p)) / device.units;
    }
    ConfigWriter config;
    config.add("filters", tiling.filters).add("resident", tiling.resident);
    if (p.max_pool) config.add("tiles", tiling.tiles);
    if (tiling.wgmma) config.add("by", std::string_view("wgmma"));
    return {.format = aligned_nhwc(p.k, p.storage),
            .x_format = formats::nchw,
            .pitched = true,
            .config = config.str(),
            .estimated_us =
                device.launch_us + start_us + std::max(p.bytes() / (memory_share * device.bytes_per_us), tiles_us),
            .tolerance = tolerance(p)};
  }

  /// Time of `items` walks of that many tiles, in waves of blocks. A tile has a latency, and a part that serialises
  /// over a multiprocessor's blocks; both grow with its k-blocks. Fitted by hand on an H100 (lenslet-bench-stem-pool).
  static double waves_us(const ConvProblem& p, const DeviceProfile& device, const StemPlan& tiling, std::int64_t items,
                         double tiles) {
    struct Cost {
      double alone_us, alone_step_us, shared_us, shared_step_us;
    };
    const Cost cost = p.storage == DType::f32 ? Cost{1.1, 0.035, 0.88, 0.043} : Cost{1.7, 0.05, 0.51, 0.036};
    const auto steps = static_cast<double>(step_count(p)),
               blocks = static_cast<double>(items) * static_cast<double>(ceil_div(p.k, tiling.filters));
    const double on_unit = std::min(static_cast<double>(tiling.resident), std::ceil(blocks / device.units));
    return std::ceil(blocks / (device.units * on_unit)) * tiles *
           (cost.alone_us + cost.alone_step_us * steps + on_unit * (cost.shared_us + cost.shared_step_us * steps));
  }

  /// The tiling with as many blocks as fit, with max pooling and walks of each length.
  static std::vector<StemPlan> walks_of(const ConvProblem& p, const DeviceProfile& device, StemPlan tiling) {
    if (!p.max_pool) return {tiling};
    tiling.resident = std::clamp<std::int64_t>(
        static_cast<std::int64_t>(device.shared_bytes_per_unit) / (shared_bytes(p, tiling.filters) + 1024), 1,
        tiling.resident);
    std::vector<StemPlan> all;
    for (std::int64_t walks = 1; walks <= walk_tiles(p); ++walks) {
      const std::int64_t tiles = ceil_div(walk_tiles(p), walks);
      if (tiles == tiling.tiles) continue;
      tiling.tiles = tiles;
      all.push_back(tiling);
    }
    return all;
  }
  static double walks_us(const ConvProblem& p, const DeviceProfile& device, const StemPlan& tiling) {
    if (!p.max_pool) return 0;
    constexpr double above_tiles = 0.6;  // breaks ties: with one image more walks never paid
    const double above = tiling.tiles < walk_tiles(p) || p.max_pool.pad_top == 0 ? above_tiles : 0;
    return waves_us(p, device, tiling, p.n * strip_count(p) * ceil_div(walk_tiles(p), tiling.tiles),
                    static_cast<double>(tiling.tiles) + above);
  }

  /// Both float32 operands are rounded, as for TF32 (tf32_sum_tolerance).
  static double tolerance(const ConvProblem& p) {
    const std::int64_t gemm_k = p.c * p.r * p.s;
    if (p.storage == DType::f32) return tf32_sum_tolerance(gemm_k) + sum_tolerance(gemm_k);
    if (p.x_storage == p.storage) return half_sum_tolerance(p.storage, gemm_k);
    return 10 * unit_roundoff(p.storage) + 2 * sum_tolerance(gemm_k);
  }

  FilterForm filter_form(const ConvProblem& p, std::string_view config) const override {
    const StemPlan plan = read_plan(p, config);
    const std::string filters = std::to_string(plan.filters);
    return {.elements = ceil_div(p.k, plan.filters) * plan.filters * step_count(p) * step_words * word_elems_of(p),
            .form = std::string(to_string(p.storage)) + " by " + filters + (plan.wgmma ? " for wgmma" : ""),
            .element_bytes = dtype_bytes(p.storage)};
  }

  void transform(const ConvProblem& p, std::string_view config, const ConvFilter& filter,
                 std::span<std::byte> to) const override {
    const StemPlan plan = read_plan(p, config);
    const std::int64_t filters = plan.filters, words_a_row = row_words(p), steps = step_count(p);
    dispatch(p.storage, Types<float, Float16, BFloat16>(), [&]<typename T>(std::type_identity<T>) {
      constexpr std::int64_t elems = word_elems<T>;
      T* element = reinterpret_cast<T*>(to.data());
      // `place`: index of a filter in its block; `word`: of a k-block.
      const auto write = [&](std::int64_t first_k, std::int64_t place, std::int64_t word) {
        const std::int64_t k = first_k + filter_at<T>(place);
        const std::int64_t r = word / words_a_row;
        for (std::int64_t i = 0; i < elems; ++i) {
          const std::int64_t k_index = word % words_a_row * elems + i, s = k_index / p.c, c = k_index % p.c;
          const bool exists = k < p.k && r < p.r && k_index < p.s * p.c;
          const double weight = exists ? filter.exact_weight(k, (c * p.r + r) * p.s + s) : 0.0;
          if constexpr (std::is_same_v<T, float>)
            *element++ = tf32_from_f64(weight);
          else
            *element++ = narrowed<T>(weight);
        }
      };
      for (std::int64_t first_k = 0; first_k < p.k; first_k += filters)
        for (std::int64_t step = 0; step < steps; ++step)
          if (plan.wgmma) {
            for (std::int64_t word = 0; word < step_words; word += 4)
              for (std::int64_t place = 0; place < filters; ++place)
                for (std::int64_t i = 0; i < 4; ++i) write(first_k, place, step * step_words + word + i);
          } else {
            for (std::int64_t tile = 0; tile < filters / 8; tile += 2)
              for (std::int64_t lane = 0; lane < 32; ++lane)
                for (std::int64_t part = 0; part < 4; ++part)
                  write(first_k, (tile + part / 2) * 8 + lane / 4, step * step_words + lane % 4 + part % 2 * 4);
          }
    });
  }

  std::unique_ptr<const BoundKernel> bind_conv(const ConvProblem& p, std::string_view config,
                                               const DeviceProfile& device) const override {
    const StemPlan plan = read_plan(p, config);
    if constexpr (cuda_built)
      return bind_stem(p, plan, device.units);
    else
      return not_built();
  }
};

}  // namespace

const Kernel& conv_stem() {
  static const Stem algorithm;
  return algorithm;
}

}  // namespace lenslet::cuda
