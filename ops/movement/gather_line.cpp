#include "ops/movement/gather_line.h"

#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/movement/gather_line.cpp"
// foreach_target.h must come before highway.h.
// clang-format off
#include "base/simd/targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace lenslet::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR
/// Indices beyond 32 bits become the least integer, which is out of range as well.
template <class D>
HWY_INLINE hn::Vec<D> load_indices(D d, const std::int64_t* indices) {
  const auto* const halves = reinterpret_cast<const std::int32_t*>(indices);
  const auto front = hn::LoadU(d, halves), back = hn::LoadU(d, halves + hn::Lanes(d));
  const auto low = hn::ConcatEven(d, back, front), high = hn::ConcatOdd(d, back, front);
  return hn::IfThenElse(hn::Eq(high, hn::ShiftRight<31>(low)), low,
                        hn::Set(d, std::numeric_limits<std::int32_t>::min()));
}
template <class D>
HWY_INLINE hn::Vec<D> load_indices(D d, const std::int32_t* indices) {
  return hn::LoadU(d, indices);
}
#endif

template <typename Index>
HWY_INLINE bool line_kernel(const GatherLine& line, const Index* indices, std::int64_t n, const std::uint32_t* from,
                            std::uint32_t* to) {
  bool all = true;
  std::int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::ScalableTag<std::int32_t> d;
  const hn::RebindToUnsigned<decltype(d)> bits;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto dim = hn::Set(d, static_cast<std::int32_t>(line.dim));
  const auto step = hn::Set(d, static_cast<std::int32_t>(line.axis_step));
  auto place = hn::Mul(hn::Iota(d, 0), hn::Set(d, static_cast<std::int32_t>(line.from_step)));
  const auto next = hn::Set(d, static_cast<std::int32_t>(lanes * line.from_step));
  const auto zero = hn::Zero(d), below = hn::Set(d, -1);
  auto right = hn::Eq(zero, zero);
  for (; i + lanes <= n; i += lanes, place = hn::Add(place, next)) {
    const auto given = load_indices(d, indices + i);
    const auto index = hn::Add(given, hn::IfThenElseZero(hn::Lt(given, zero), dim));
    const auto inside = hn::And(hn::Gt(index, below), hn::Lt(index, dim));
    right = hn::And(right, inside);
    const auto at = hn::Add(place, hn::Mul(hn::IfThenElseZero(inside, index), step));
    hn::StoreU(hn::GatherIndex(bits, from, at), bits, to + i);
  }
  all = hn::AllTrue(d, right);
#endif
  for (; i < n; ++i) {
    const auto given = static_cast<std::int64_t>(indices[i]), index = given + (given < 0 ? line.dim : 0);
    const bool inside = index >= 0 && index < line.dim;
    all &= inside;
    to[i] = from[i * line.from_step + (inside ? index : 0) * line.axis_step];
  }
  return all;
}

bool wide_kernel(const GatherLine& line, const std::int64_t* indices, std::int64_t n, const std::uint32_t* from,
                 std::uint32_t* to) {
  return line_kernel(line, indices, n, from, to);
}
bool narrow_kernel(const GatherLine& line, const std::int32_t* indices, std::int64_t n, const std::uint32_t* from,
                   std::uint32_t* to) {
  return line_kernel(line, indices, n, from, to);
}

}  // namespace lenslet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lenslet {

HWY_EXPORT(wide_kernel);
HWY_EXPORT(narrow_kernel);

bool gather_line(const GatherLine& line, const std::int64_t* indices, std::int64_t n, const std::uint32_t* from,
                 std::uint32_t* to) {
  return HWY_DYNAMIC_DISPATCH(wide_kernel)(line, indices, n, from, to);
}
bool gather_line(const GatherLine& line, const std::int32_t* indices, std::int64_t n, const std::uint32_t* from,
                 std::uint32_t* to) {
  return HWY_DYNAMIC_DISPATCH(narrow_kernel)(line, indices, n, from, to);
}

}  // namespace lenslet
#endif
