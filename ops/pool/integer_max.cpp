#include "ops/pool/integer_max.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/pool/integer_max.cpp"
// foreach_target.h must come before highway.h.
// clang-format off
#include "base/simd/targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace lenslet {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// to[i] = the larger of to[i] and from[i].
template <typename T>
void raise(const T* from, std::int64_t count, T* to) {
  const hn::ScalableTag<T> tag;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(tag));
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    hn::StoreU(hn::Max(hn::LoadU(tag, from + i), hn::LoadU(tag, to + i)), tag, to + i);
  for (; i < count; ++i) to[i] = std::max(to[i], from[i]);
}

/// The same with from[i * stride].
template <typename T>
void raise_strided(const T* from, std::int64_t stride, std::int64_t count, T* to) {
  if (stride == 1) return raise(from, count, to);
  std::int64_t i = 0;
  if (stride == 2) {
    const hn::ScalableTag<T> tag;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(tag));
    for (; i + lanes < count; i += lanes) {  // not the last one: it would read behind the line
      hn::Vec<decltype(tag)> even, odd;
      hn::LoadInterleaved2(tag, from + 2 * i, even, odd);
      hn::StoreU(hn::Max(even, hn::LoadU(tag, to + i)), tag, to + i);
    }
  }
  for (; i < count; ++i) to[i] = std::max(to[i], from[i * stride]);
}

template <typename T>
void max_lines(const PoolProblem& p, const T* x, std::int64_t begin, std::int64_t end, T* scratch, T* y) {
  constexpr T least = std::numeric_limits<T>::lowest();
  const PoolAxis &deep = p.axes[0], &high = p.axes[1], &wide = p.axes[2];
  // The scratch line begins at the first window's first tap; taps beside the image are the least value.
  const std::int64_t length = (wide.out - 1) * wide.stride + (wide.kernel - 1) * wide.dilation + 1;
  const std::int64_t inside = std::clamp<std::int64_t>(length - wide.pad_begin, 0, wide.in);
  T* const image = scratch + std::min(wide.pad_begin, length);
  for (std::int64_t line = begin; line < end; ++line) {
    const T* const plane = x + line / high.out / deep.out * p.in();
    const PoolTaps d = deep.taps(line / high.out % deep.out), h = high.taps(line % high.out);
    std::fill(scratch, scratch + length, least);
    for (std::int64_t i = 0; i < d.count; ++i)
      for (std::int64_t j = 0; j < h.count; ++j)
        raise(plane + ((d.first + i * deep.dilation) * high.in + h.first + j * high.dilation) * wide.in, inside, image);
    T* const out = y + line * wide.out;
    std::fill(out, out + wide.out, least);
    for (std::int64_t k = 0; k < wide.kernel; ++k)
      raise_strided(scratch + k * wide.dilation, wide.stride, wide.out, out);
  }
}

void max_lines_i8(const PoolProblem& p, const void* x, std::int64_t begin, std::int64_t end, std::byte* scratch,
                  void* y) {
  max_lines(p, static_cast<const std::int8_t*>(x), begin, end, reinterpret_cast<std::int8_t*>(scratch),
            static_cast<std::int8_t*>(y));
}

void max_lines_u8(const PoolProblem& p, const void* x, std::int64_t begin, std::int64_t end, std::byte* scratch,
                  void* y) {
  max_lines(p, static_cast<const std::uint8_t*>(x), begin, end, reinterpret_cast<std::uint8_t*>(scratch),
            static_cast<std::uint8_t*>(y));
}

}  // namespace HWY_NAMESPACE
}  // namespace lenslet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lenslet {

HWY_EXPORT(max_lines_i8);
HWY_EXPORT(max_lines_u8);

std::int64_t integer_max_scratch(const PoolProblem& problem) {
  const PoolAxis& wide = problem.axes[2];
  constexpr std::int64_t most_beside = 4096;
  if (wide.out == 0 || wide.kernel > most_beside / wide.dilation) return 0;
  const std::int64_t length = (wide.out - 1) * wide.stride + (wide.kernel - 1) * wide.dilation + 1;
  if (length > wide.in + 3 * most_beside) return 0;
  return (length + 63) / 64 * 64;  // whole cache lines, so that threads do not share one
}

void pool_integer_max(const PoolProblem& problem, bool is_signed, const void* x, std::int64_t begin, std::int64_t end,
                      std::byte* scratch, void* y) {
  if (is_signed)
    HWY_DYNAMIC_DISPATCH(max_lines_i8)(problem, x, begin, end, scratch, y);
  else
    HWY_DYNAMIC_DISPATCH(max_lines_u8)(problem, x, begin, end, scratch, y);
}

}  // namespace lenslet
#endif
