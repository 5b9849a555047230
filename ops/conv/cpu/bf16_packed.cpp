// Convolutions of bfloat16 without columns: tiles of output pixels by two vectors of filters, whose float32
// accumulators stay in registers (packed_windows.h). A word is two elements, which are widened to float32; or VDPBF16PS
// multiplies and adds the pair, with subnormals as zeros (Intel, Architecture Instruction Set Extensions). On Sapphire
// Rapids the instruction is the slower way: 36 to 64 GFLOP/s of a loaded core, 62 to 95 by widening.
#include <algorithm>
#include <cstring>

#include "base/convert.h"
#include "ops/conv/cpu/bf16_windows.h"
#include "ops/core/config_text.h"
#include "ops/core/sum_tolerance.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif

#include "base/simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/conv/cpu/bf16_packed.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// After foreach_target.h:
#include <hwy/highway.h>

#include "base/simd/bf16-inl.h"
#include "ops/core/simd/activation-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lenslet::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr bool may_have_bf16 = HWY_ARCH_X86_64 && HWY_TARGET <= HWY_AVX3;
// As many accumulators as registers allow beside the operands.
constexpr std::int64_t tile_rows = HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3 ? 12 : 4;

using D = hn::ScalableTag<float>;
using DW = hn::ScalableTag<std::uint32_t>;
using V = hn::Vec<D>;

std::int64_t lanes() { return static_cast<std::int64_t>(hn::Lanes(D())); }

/// The elements of words as float32.
HWY_INLINE V first_of(hn::Vec<DW> words) { return hn::BitCast(D(), hn::ShiftLeft<16>(words)); }
HWY_INLINE V second_of(hn::Vec<DW> words) { return hn::BitCast(D(), hn::And(words, hn::Set(DW(), 0xFFFF0000U))); }

/// What tiles of a panel share.
struct PanelWords {
  const float* start;
  const std::int32_t *words, *ahead;
  std::int64_t ahead_step;  ///< between lines of the next panel that are prefetched into L2, one with each word
};

/// The sums of `rows` windows and a panel of `vectors` vectors: [rows][2 vectors].
template <bool pairs, std::int64_t rows, std::int64_t vectors>
void multiply_tile(const WindowBlock& block, const std::byte* const* windows, const PanelWords& of, float* sums) {
  const std::int32_t *panel = of.words, *ahead = of.ahead;
  const D d;
  const DW dw;
  V sum[rows][vectors];
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t v = 0; v < vectors; ++v) sum[i][v] = hn::LoadU(d, of.start + v * lanes());
  for (std::int64_t r = 0; r < block.run_count; ++r) {
    const std::int64_t begin = block.runs[r] + block.group_offset, end = begin + 4 * block.words;
    for (std::int64_t at = begin; at < end; at += 4, panel += vectors * lanes(), ahead += of.ahead_step) {
      __builtin_prefetch(ahead, 0, 2);
      hn::Vec<DW> w[vectors];
      for (std::int64_t v = 0; v < vectors; ++v)
        w[v] = hn::LoadU(dw, reinterpret_cast<const std::uint32_t*>(panel) + v * lanes());
      for (std::int64_t i = 0; i < rows; ++i) {
        std::uint32_t word;
        std::memcpy(&word, windows[i] + at, sizeof word);
        const auto x = hn::Set(dw, word);
        for (std::int64_t v = 0; v < vectors; ++v) {
#if HWY_ARCH_X86_64 && HWY_TARGET <= HWY_AVX3
          if constexpr (pairs) {
            asm("vdpbf16ps %2, %1, %0" : "+v"(sum[i][v].raw) : "v"(x.raw), "v"(w[v].raw));
            continue;
          }
#endif
          sum[i][v] = hn::MulAdd(first_of(x), first_of(w[v]), sum[i][v]);
          sum[i][v] = hn::MulAdd(second_of(x), second_of(w[v]), sum[i][v]);
        }
      }
    }
  }
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t v = 0; v < vectors; ++v) hn::StoreU(sum[i][v], d, sums + (2 * i + v) * lanes());
}

template <bool pairs, std::int64_t most, std::int64_t vectors>
void multiply_up_to(const WindowBlock& block, const std::byte* const* windows, std::int64_t rows,
                    const PanelWords& panel, float* sums) {
  if (rows == most) return multiply_tile<pairs, most, vectors>(block, windows, panel, sums);
  if constexpr (most > 1) multiply_up_to<pairs, most - 1, vectors>(block, windows, rows, panel, sums);
}

void store_rows(const Bf16Panel& panel, const float* sums, std::int64_t rows, std::byte* y, const std::byte* residual,
                std::int64_t y_pixel) {
  const D d;
  const std::int64_t columns = panel.columns;
#if HWY_ARCH_X86_64 && HWY_TARGET <= HWY_AVX3
  const __mmask32 stored = first_elements(columns);
  // y may be the residual: a load waits for a masked store whose 64 bytes it meets.
  __m512i added[16];
  if (residual != nullptr)
    for (std::int64_t i = 0; i < rows; ++i) added[i] = _mm512_maskz_loadu_epi16(stored, residual + i * y_pixel);
  with_activation(panel.activation, [&](auto act) HWY_ATTR {
    for (std::int64_t i = 0; i < rows; ++i, sums += 32, y += y_pixel) {
      V first = hn::LoadU(d, sums), second = hn::LoadU(d, sums + 16);
      if (residual != nullptr) {
        first = hn::Add(first, first_widened(added[i]));
        second = hn::Add(second, second_widened(added[i]));
      }
      _mm512_mask_storeu_epi16(y, stored, rounded_pair(act(d, first), act(d, second)));
    }
  });
#else
  with_activation(panel.activation, [&](auto act) HWY_ATTR {
    BFloat16 part[2 * hn::MaxLanes(D())];
    for (std::int64_t i = 0; i < rows; ++i, sums += 2 * lanes(), y += y_pixel) {
      for (std::int64_t j = 0; j < columns; j += lanes()) {
        V value = hn::LoadU(d, sums + j);
        const bool whole = columns - j >= lanes();
        const auto bytes = static_cast<std::size_t>(whole ? lanes() : columns - j) * sizeof(BFloat16);
        if (residual != nullptr) {
          const auto* from = reinterpret_cast<const BFloat16*>(residual + i * y_pixel) + j;
          if (!whole) from = static_cast<const BFloat16*>(std::memcpy(part, from, bytes));
          value = hn::Add(value, load(d, from));
        }
        auto* const to = reinterpret_cast<BFloat16*>(y) + j;
        store(act(d, value), d, whole ? to : part);
        if (!whole) std::memcpy(to, part, bytes);
      }
    }
  });
#endif
}

template <bool pairs>
void multiply_panels(const WindowBlock& block) {
  HWY_ALIGN float sums[tile_rows * Bf16Panel::most_columns];
  constexpr std::int64_t line = 16, y_bytes = 2;
  const std::int64_t columns = 2 * lanes(), depth = block.run_count * block.words;
  // Tiles of similar height: a low one would wait for its own accumulators.
  const std::int64_t tiles = (block.m + tile_rows - 1) / tile_rows;
  for (std::int64_t k = 0; k < block.k; k += columns) {
    const Bf16Panel panel(block, k, columns);
    const std::int32_t* const filters = block.filters + k * depth;
    for (std::int64_t tile = 0; tile < tiles; ++tile) {
      const std::int64_t m = block.m * tile / tiles, rows = block.m * (tile + 1) / tiles - m;
      // In a network filters come from L3 or memory: the first tiles of a panel fetch the next one.
      const std::int32_t* const ahead = filters + columns * depth + tile * line * depth;
      const PanelWords of{panel.start, filters, ahead, tile * line < columns ? line : 0};
      if (panel.columns > lanes())
        multiply_up_to<pairs, tile_rows, 2>(block, block.windows + m, rows, of, sums);
      else
        multiply_up_to<pairs, tile_rows, 1>(block, block.windows + m, rows, of, sums);
      const std::int64_t at = k * y_bytes + m * block.y_pixel;
      store_rows(panel, sums, rows, block.y + at, block.residual == nullptr ? nullptr : block.residual + at,
                 block.y_pixel);
    }
  }
}

void multiply_pairs(const WindowBlock& block) { multiply_panels<may_have_bf16>(block); }
void multiply_widened(const WindowBlock& block) { multiply_panels<false>(block); }

}  // namespace
}  // namespace lenslet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lenslet {

namespace {

HWY_EXPORT(lanes);
HWY_EXPORT(multiply_pairs);
HWY_EXPORT(multiply_widened);
HWY_EXPORT(store_rows);

/// Whether the CPU has VDPBF16PS, and whether that is faster than to widen: not on Intel's.
struct Pairs {
  bool exist = false, pay = false;
};

Pairs pairs() {
  static const Pairs of_cpu = [] {
    Pairs has;
#ifdef __x86_64__
    unsigned a = 0, b = 0, c = 0, d = 0;
    has.exist = __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a >> 5 & 1) != 0;
    has.pay = has.exist && __get_cpuid(0, &a, &b, &c, &d) != 0 && b != signature_INTEL_ebx;
#endif
    return has;
  }();
  return HWY_DYNAMIC_DISPATCH(lanes)() == 16 ? of_cpu : Pairs();
}

class Bf16Packed final : public Bf16Conv {
 public:
  std::string_view name() const override { return "bf16_packed"; }

 private:
  WindowKernel kernel() const override { return bf16_vector_kernel(); }
  WindowKernel kernel_of(std::string_view config) const override {
    ConfigReader reader(config);
    const bool wanted = reader.flag("pairs");
    reader.finish();
    WindowKernel kernel = bf16_vector_kernel();
    if (!wanted) return kernel;
    if (!pairs().exist) reader.refuse("the CPU has no AVX512_BF16");
    kernel.speed = pairs().pay ? 1.9 : 0.5;
    kernel.multiply = [](const WindowBlock& block) { HWY_DYNAMIC_DISPATCH(multiply_pairs)(block); };
    return kernel;
  }
  static std::string config(bool by_pairs) { return ConfigWriter().add("pairs", by_pairs).str(); }
  ConvCandidate candidate(const ConvProblem& p, const Target& target) const override {
    return candidate_of(p, target, config(pairs().pay));
  }
  std::vector<ConvCandidate> candidates(const ConvProblem& p, const Target& target) const override {
    if (!pairs().exist) return {};
    return by_time({candidate_of(p, target, config(true)), candidate_of(p, target, config(false))});
  }
};

}  // namespace

WindowKernel bf16_vector_kernel() {
  WindowKernel kernel;
  kernel.lanes = HWY_DYNAMIC_DISPATCH(lanes)();
  kernel.word_k = 2;
  kernel.reads_past_runs = false;
  kernel.speed = kernel.lanes == 16 ? 0.7 : 0.45;
  kernel.vector_us = 1e-3;
  kernel.multiply = [](const WindowBlock& block) { HWY_DYNAMIC_DISPATCH(multiply_widened)(block); };
  return kernel;
}

double Bf16Conv::tolerance(const ConvProblem& p) const {
  // A float32 x is rounded, too: sqrt(2) times the error of one rounded operand.
  const double of_one = half_sum_tolerance(DType::bf16, p.group_c() * p.r * p.s);
  return p.x_storage == DType::f32 ? std::sqrt(2.0) * of_one : of_one;
}

std::optional<std::string> Bf16Conv::refuse(const ConvProblem& p, const Target& target) const {
  if (p.requantized) return "its output is requantized";
  return WindowConv::refuse(p, target);
}

void Bf16Conv::transform(const ConvProblem& p, std::string_view, const ConvFilter& filter,
                         std::span<std::byte> to) const {
  std::memset(to.data(), 0, to.size());
  place_weights(p, reinterpret_cast<std::int32_t*>(to.data()), [&](std::int64_t k, std::int64_t i, std::byte* element) {
    const std::uint16_t bits = bf16_from_f64(filter.exact_weight(k, i));
    std::memcpy(element, &bits, sizeof bits);
  });
}

Bf16Panel::Bf16Panel(const WindowBlock& block, std::int64_t first, std::int64_t wanted)
    : columns(std::min(wanted, block.k - first)), activation(block.problem->activation) {
  if (block.bias != nullptr) std::memcpy(start, block.bias + 4 * first, 4 * static_cast<std::size_t>(columns));
}

void store_bf16_rows(const Bf16Panel& panel, const float* sums, std::int64_t rows, std::byte* y,
                     const std::byte* residual, std::int64_t y_pixel) {
  HWY_DYNAMIC_DISPATCH(store_rows)(panel, sums, rows, y, residual, y_pixel);
}

const Kernel& conv_bf16_packed() {
  static const Bf16Packed algorithm;
  return algorithm;
}

}  // namespace lenslet
#endif
