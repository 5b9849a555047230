#include "ops/conv/cpu/int8_windows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#ifdef __x86_64__
#include <cpuid.h>
#endif

namespace lenslet {

bool has_avx_vnni() {
#ifdef __x86_64__
  static const bool has = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a >> 4 & 1) != 0;
  }();
  return has;
#else
  return false;
#endif
}

Int8Codes codes_of(const ConvProblem& p) {
  const bool is_signed = p.storage == DType::i8;
  const int least = is_signed ? -128 : 0, most = least + 255;
  return {p.y_zero_point, std::clamp(p.y_least, least, most), std::clamp(p.y_most, least, most), is_signed};
}

Int8Panel::Int8Panel(const WindowBlock& block, std::int64_t first, std::int64_t wanted)
    : columns(std::min(wanted, block.k - first)), codes(codes_of(*block.problem)) {
  std::copy_n(block.multipliers + first, columns, multipliers);
  std::copy_n(block.corrections + first, columns, start);
  std::int32_t bias[most_columns] = {};
  if (block.bias != nullptr) std::memcpy(bias, block.bias + 4 * first, 4 * static_cast<std::size_t>(columns));
  int above = 0, beyond = 0;
  for (std::int64_t j = 0; j < most_columns; ++j) {
    above += std::abs(multipliers[j]) < 1 ? 0 : 1;
    beyond += std::abs(multipliers[j]) <= std::numeric_limits<float>::max() ? 0 : 1;
    start[j] = static_cast<std::int32_t>(static_cast<std::uint32_t>(start[j]) + static_cast<std::uint32_t>(bias[j]));
  }
  below_one = above == 0;
  finite = beyond == 0;
}

std::optional<std::string> refuse_more_than_codes(const ConvProblem& p) {
  if (!p.requantized) return "its output is not requantized";
  if (p.residual) return "it has a residual";
  if (p.activation.kind != Activation::Kind::none) return "its activation is no range of codes";
  return std::nullopt;
}

std::optional<std::string> Int8Conv::refuse(const ConvProblem& p, const Target& target) const {
  if (auto why = refuse_more_than_codes(p)) return why;
  if (p.x_storage != DType::u8) return fmt::format("its input is {}; only uint8 is supported", to_string(p.x_storage));
  if (p.x_zero_point < 0 || p.x_zero_point > 255 || p.y_zero_point < -128 || p.y_zero_point > 255)
    return "a zero point is no code";
  return WindowConv::refuse(p, target);
}

void Int8Conv::transform(const ConvProblem& p, std::string_view, const ConvFilter& filter,
                         std::span<std::byte> to) const {
  std::memset(to.data(), 0, to.size());
  auto* const corrections = reinterpret_cast<std::int32_t*>(to.data());
  const auto* const w = filter.elements<std::int8_t>();
  for (std::int64_t k = 0; k < p.k; ++k) {
    const std::int64_t sum = std::accumulate(w + k * filter.gemm_k, w + (k + 1) * filter.gemm_k, std::int64_t{0});
    corrections[k] = static_cast<std::int32_t>(static_cast<std::uint32_t>(-p.x_zero_point * sum));
  }
  const bool bytes = kernel().word_k == 4;
  place_weights(p, corrections + WindowLayout(p, kernel()).correction_words,
                [&](std::int64_t k, std::int64_t i, std::byte* element) {
                  const std::int8_t value = w[k * filter.gemm_k + i];
                  if (bytes)
                    *reinterpret_cast<std::int8_t*>(element) = value;
                  else
                    *reinterpret_cast<std::int16_t*>(element) = value;
                });
}

}  // namespace lenslet
