#include "ops/reduce/row_kernels.h"

#include <algorithm>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/reduce/row_kernels.cpp"
// foreach_target.h must come before highway.h.
// clang-format off
#include "base/simd/targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "base/simd/bf16-inl.h"
#include "ops/core/simd/activation-inl.h"
#include "ops/core/simd/bounds-inl.h"
#include "ops/core/simd/sum-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace lenslet::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Interleaved accumulators, which hide the addition's latency.
constexpr std::int64_t chains = 8;

/// `sum` plus the terms of a vector, or of the floats at x.
template <reduce::Term term, class D, class V = hn::Vec<D>>
HWY_INLINE V add_terms(D d, V sum, hn::Vec<hn::Rebind<float, D>> x) {
  const V wide = hn::PromoteTo(d, x);
  if constexpr (term == reduce::Term::square) return hn::MulAdd(wide, wide, sum);
  return hn::Add(sum, term == reduce::Term::value ? wide : hn::Abs(wide));
}
template <reduce::Term term, class D, typename T, class V = hn::Vec<D>>
HWY_INLINE V add_term(D d, V sum, const T* x) {
  return add_terms<term>(d, sum, load(hn::Rebind<float, D>(), x));
}

template <reduce::Term term>
double sum_of(const float* x, std::int64_t n) {
  const hn::ScalableTag<double> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  hn::Vec<decltype(d)> sums[chains];
  for (auto& sum : sums) sum = hn::Zero(d);
  const auto add = [&](std::int64_t chain, std::int64_t i)
                       HWY_ATTR { sums[chain] = add_term<term>(d, sums[chain], x + i); };
  std::int64_t i = 0;
  for (; i + chains * lanes <= n; i += chains * lanes)
    for (std::int64_t chain = 0; chain < chains; ++chain) add(chain, i + chain * lanes);
  for (; i + lanes <= n; i += lanes) add(0, i);
  for (std::int64_t step = chains / 2; step > 0; step /= 2)
    for (std::int64_t chain = 0; chain < step; ++chain) sums[chain] = hn::Add(sums[chain], sums[chain + step]);
  reduce::SumFold<float, term> rest;
  rest.sum = hn::GetLane(hn::SumOfLanes(d, sums[0]));
  for (; i < n; ++i) rest.add(x[i], 0, {});
  return rest.sum;
}

double sum_kernel(const float* x, std::int64_t n, reduce::Term term) {
  if (term == reduce::Term::square) return sum_of<reduce::Term::square>(x, n);
  return term == reduce::Term::value ? sum_of<reduce::Term::value>(x, n) : sum_of<reduce::Term::magnitude>(x, n);
}

/// Vectors [0, count) of sums plus the rows at x.
template <reduce::Term term, std::int64_t count, class D, typename T>
HWY_INLINE void add_strip(D d, const T* x, std::int64_t stride, std::int64_t rows, double* sums) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  hn::Vec<D> kept[count];
  for (std::int64_t k = 0; k < count; ++k) kept[k] = hn::LoadU(d, sums + k * lanes);
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t k = 0; k < count; ++k) kept[k] = add_term<term>(d, kept[k], x + i * stride + k * lanes);
  for (std::int64_t k = 0; k < count; ++k) hn::StoreU(kept[k], d, sums + k * lanes);
}

template <reduce::Term term, typename T>
void add_rows_of(const T* x, std::int64_t stride, std::int64_t rows, std::int64_t width, double* sums) {
  const hn::ScalableTag<double> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t j = 0;
  for (; j + chains * lanes <= width; j += chains * lanes) add_strip<term, chains>(d, x + j, stride, rows, sums + j);
  for (; j + 4 * lanes <= width; j += 4 * lanes) add_strip<term, 4>(d, x + j, stride, rows, sums + j);
  for (; j + 2 * lanes <= width; j += 2 * lanes) add_strip<term, 2>(d, x + j, stride, rows, sums + j);
  for (; j + lanes <= width; j += lanes) add_strip<term, 1>(d, x + j, stride, rows, sums + j);
  for (; j < width; ++j) add_strip<term, 1>(hn::CappedTag<double, 1>(), x + j, stride, rows, sums + j);
}

void add_rows_kernel(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t width, double* sums,
                     reduce::Term term) {
  if (term == reduce::Term::square) return add_rows_of<reduce::Term::square>(x, stride, rows, width, sums);
  if (term == reduce::Term::value) return add_rows_of<reduce::Term::value>(x, stride, rows, width, sums);
  add_rows_of<reduce::Term::magnitude>(x, stride, rows, width, sums);
}

void add_bf16_rows_kernel(const BFloat16* x, std::int64_t stride, std::int64_t rows, std::int64_t width, double* sums) {
  add_rows_of<reduce::Term::value>(x, stride, rows, width, sums);
}

template <bool largest>
float extreme_of(const float* x, std::int64_t n) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto better = [](auto a, auto b) HWY_ATTR { return largest ? hn::Max(a, b) : hn::Min(a, b); };
  // Stays 0 while all are finite: cheaper than comparing each element with itself.
  const auto zero = hn::Zero(d);
  hn::Vec<decltype(d)> best[chains], odd[chains];
  const auto worst = hn::Set(d, reduce::ExtremeFold<float, largest>::neutral({}));
  for (std::int64_t chain = 0; chain < chains; ++chain) best[chain] = worst, odd[chain] = zero;
  const auto add = [&](std::int64_t chain, std::int64_t i) HWY_ATTR {
    const auto v = hn::LoadU(d, x + i);
    best[chain] = better(v, best[chain]);
    odd[chain] = hn::MulAdd(v, zero, odd[chain]);
  };
  std::int64_t i = 0;
  for (; i + chains * lanes <= n; i += chains * lanes)
    for (std::int64_t chain = 0; chain < chains; ++chain) add(chain, i + chain * lanes);
  for (; i + lanes <= n; i += lanes) add(0, i);
  for (std::int64_t step = chains / 2; step > 0; step /= 2)
    for (std::int64_t chain = 0; chain < step; ++chain) {
      best[chain] = better(best[chain], best[chain + step]);
      odd[chain] = hn::Add(odd[chain], odd[chain + step]);
    }
  if (!hn::AllTrue(d, hn::Eq(odd[0], zero)))
    for (std::int64_t k = 0; k + lanes <= n; k += lanes)
      if (const auto v = hn::LoadU(d, x + k); !hn::AllTrue(d, hn::Eq(v, v)))
        return std::numeric_limits<float>::quiet_NaN();
  reduce::ExtremeFold<float, largest> rest;
  rest.best = hn::GetLane(largest ? hn::MaxOfLanes(d, best[0]) : hn::MinOfLanes(d, best[0]));
  for (; i < n; ++i) rest.add(x[i], 0, {});
  return rest.best;
}

float largest_kernel(const float* x, std::int64_t n) { return extreme_of<true>(x, n); }
float least_kernel(const float* x, std::int64_t n) { return extreme_of<false>(x, n); }

// Short rows, four at a time: each is folded to one vector, and the four vectors to one with a result per row. The tail
// is loaded with some elements before it, which are masked in a sum and harmless in an extreme.
constexpr std::int64_t four = 4;

/// Calls f(rows, first, count): `rows` start at x[first * n]; if fewer than four are left, the last one repeats.
template <class F>
HWY_INLINE void by_four_rows(const float* x, std::int64_t n, std::int64_t rows, const F& f) {
  for (std::int64_t first = 0; first < rows; first += four) {
    const std::int64_t count = std::min(four, rows - first);
    const float* of_rows[four];
    // Prefetches 4 KiB ahead (rows of 49 from L3: extremes 0.36 -> 0.30 ms, sums 0.37 -> 0.34).
    for (std::int64_t j = 0; j < four * n; j += 16) __builtin_prefetch(x + first * n + j + 1024);
    for (std::int64_t i = 0; i < four; ++i) of_rows[i] = x + (first + std::min(i, count - 1)) * n;
    f(of_rows, first, count);
  }
}

#if HWY_TARGET != HWY_SCALAR
/// Folds a vector's halves until four lanes are left.
template <class D, class V, class F>
HWY_INLINE auto folded_to_four([[maybe_unused]] D d, V v, [[maybe_unused]] const F& f) {
  if constexpr (hn::MaxLanes(D()) == four) {
    return v;
  } else {
    const hn::Half<D> half;
    return folded_to_four(half, f(hn::LowerHalf(half, v), hn::UpperHalf(half, v)), f);
  }
}
/// Stores the first `count` of four results.
template <class D, class V, typename T>
HWY_INLINE void store_some(D d, V all, std::int64_t count, T* to) {
  if (count == four) {
    hn::StoreU(all, d, to);
    return;
  }
  HWY_ALIGN T values[four];
  hn::Store(all, d, values);
  for (std::int64_t i = 0; i < count; ++i) to[i] = values[i];
}
#endif

template <bool largest, std::int64_t n>
void tiny_extremes(const float* x, std::int64_t rows, float* y) {
  for (std::int64_t i = 0; i < rows; ++i, x += n) {
    reduce::ExtremeFold<float, largest> fold;
    for (std::int64_t j = 0; j < n; ++j) fold.add(x[j], 0, {});
    y[i] = fold.best;
  }
}

#if HWY_TARGET != HWY_SCALAR
/// Rows of at least one vector. `load` receives each term at least once.
template <class D, class L, class F>
HWY_INLINE auto extremes_of_four(D d, const float* const* rows, std::int64_t n, const L& load, const F& better) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  hn::Vec<D> best[four];
  const auto at = [&](std::int64_t j) HWY_ATTR {
    HWY_UNROLL(4)
    for (std::int64_t i = 0; i < four; ++i) best[i] = better(best[i], load(i, rows[i] + j));
  };
  HWY_UNROLL(4)
  for (std::int64_t i = 0; i < four; ++i) best[i] = load(i, rows[i]);
  for (std::int64_t j = lanes; j + lanes <= n; j += lanes) at(j);
  if (n % lanes != 0) at(n - lanes);
  const auto joined = [&](auto a, auto b)
                          HWY_ATTR { return better(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b)); };
  return folded_to_four(d, joined(joined(best[0], best[2]), joined(best[1], best[3])), better);
}

template <bool largest, class D>
void extremes_by_vectors(D d, const float* x, std::int64_t n, std::int64_t rows, float* y) {
  const hn::CappedTag<float, four> narrow;
  by_four_rows(x, n, rows, [&](const float* const* at, std::int64_t first, std::int64_t count) HWY_ATTR {
    // As in extreme_of(): if one is not finite, the four are folded again with NaN kept.
    const auto zero = hn::Zero(d);
    hn::Vec<D> odd[four] = {zero, zero, zero, zero};
    const auto noted = [&](std::int64_t i, const float* from) HWY_ATTR {
      const auto v = hn::LoadU(d, from);
      odd[i] = hn::MulAdd(v, zero, odd[i]);
      return v;
    };
    const auto better = [](auto a, auto b) HWY_ATTR { return largest ? hn::Max(a, b) : hn::Min(a, b); };
    auto all = extremes_of_four(d, at, n, noted, better);
    if (!hn::AllTrue(d, hn::Eq(hn::Add(hn::Add(odd[0], odd[1]), hn::Add(odd[2], odd[3])), zero))) {
      // The minimum is the negated maximum of the negated values, since `larger` keeps NaN.
      const auto signed_ = [](auto v) HWY_ATTR { return largest ? v : hn::Neg(v); };
      const auto load = [&](std::int64_t, const float* from) HWY_ATTR { return signed_(hn::LoadU(d, from)); };
      all = signed_(extremes_of_four(d, at, n, load, [](auto a, auto b) HWY_ATTR { return larger(a, b); }));
    }
    store_some(narrow, all, count, y + first);
  });
}
#endif

template <bool largest>
void short_extremes(const float* x, std::int64_t n, std::int64_t rows, float* y) {
  if (n == 2) return tiny_extremes<largest, 2>(x, rows, y);
  if (n == 3) return tiny_extremes<largest, 3>(x, rows, y);
#if HWY_TARGET == HWY_SCALAR
  for (std::int64_t i = 0; i < rows; ++i) y[i] = extreme_of<largest>(x + i * n, n);
#else
  if (n >= 16) return extremes_by_vectors<largest>(hn::CappedTag<float, 16>(), x, n, rows, y);
  if (n >= 8) return extremes_by_vectors<largest>(hn::CappedTag<float, 8>(), x, n, rows, y);
  extremes_by_vectors<largest>(hn::CappedTag<float, four>(), x, n, rows, y);
#endif
}

template <reduce::Term term, std::int64_t n>
void tiny_sums(const float* x, std::int64_t rows, double* sums) {
  for (std::int64_t i = 0; i < rows; ++i, x += n) {
    reduce::SumFold<float, term> fold;
    for (std::int64_t j = 0; j < n; ++j) fold.add(x[j], 0, {});
    sums[i] = fold.sum;
  }
}

#if HWY_TARGET != HWY_SCALAR
/// Rows of at least one vector.
template <reduce::Term term, class D>
void sums_by_vectors(D d, const float* x, std::int64_t n, std::int64_t rows, double* sums) {
  const hn::Rebind<float, D> narrow;
  const hn::CappedTag<double, four> d4;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto behind = hn::Ge(hn::Iota(narrow, 0), hn::Set(narrow, static_cast<float>(lanes - n % lanes)));
  by_four_rows(x, n, rows, [&](const float* const* at, std::int64_t first, std::int64_t count) HWY_ATTR {
    hn::Vec<D> sum[four];
    HWY_UNROLL(4)
    for (std::int64_t i = 0; i < four; ++i) sum[i] = hn::Zero(d);
    std::int64_t j = 0;
    for (; j + lanes <= n; j += lanes) {
      HWY_UNROLL(4)
      for (std::int64_t i = 0; i < four; ++i) sum[i] = add_terms<term>(d, sum[i], hn::LoadU(narrow, at[i] + j));
    }
    if (j < n) {
      HWY_UNROLL(4)
      for (std::int64_t i = 0; i < four; ++i)
        sum[i] = add_terms<term>(d, sum[i], hn::IfThenElseZero(behind, hn::LoadU(narrow, at[i] + n - lanes)));
    }
    const auto add = [](auto a, auto b) HWY_ATTR { return hn::Add(a, b); };
    const auto pairs = [&](auto a, auto b) HWY_ATTR {
      return folded_to_four(d, hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b)), add);
    };
    const auto low = pairs(sum[0], sum[1]), high = pairs(sum[2], sum[3]);
    const auto all = hn::Add(hn::ConcatLowerLower(d4, high, low), hn::ConcatUpperUpper(d4, high, low));
    store_some(d4, all, count, sums + first);
  });
}

#endif

template <reduce::Term term>
void short_sums(const float* x, std::int64_t n, std::int64_t rows, double* sums) {
  if (n == 2) return tiny_sums<term, 2>(x, rows, sums);
  if (n == 3) return tiny_sums<term, 3>(x, rows, sums);
#if HWY_TARGET != HWY_SCALAR
  if constexpr (hn::MaxLanes(hn::CappedTag<double, four>()) == four) {
    if (n >= 8) return sums_by_vectors<term>(hn::CappedTag<double, 8>(), x, n, rows, sums);
    return sums_by_vectors<term>(hn::CappedTag<double, four>(), x, n, rows, sums);
  }
#endif
  for (std::int64_t i = 0; i < rows; ++i) sums[i] = sum_of<term>(x + i * n, n);
}

void short_extremes_kernel(const float* x, std::int64_t n, std::int64_t rows, bool largest, float* y) {
  largest ? short_extremes<true>(x, n, rows, y) : short_extremes<false>(x, n, rows, y);
}
void short_sums_kernel(const float* x, std::int64_t n, std::int64_t rows, reduce::Term term, double* sums) {
  if (term == reduce::Term::square) return short_sums<reduce::Term::square>(x, n, rows, sums);
  if (term == reduce::Term::value) return short_sums<reduce::Term::value>(x, n, rows, sums);
  short_sums<reduce::Term::magnitude>(x, n, rows, sums);
}

double exp_sum_kernel(const float* x, std::int64_t n, float top) {
  return sum_f32(hn::ScalableTag<float>(), x, n, [top](auto tag, auto v, std::int64_t) HWY_ATTR {
    return exp_f32(tag, hn::Sub(v, hn::Set(tag, top)));
  });
}

/// The first position of `value` in x[0, n), which contains it.
std::int64_t place_kernel(const float* x, std::int64_t n, float value) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto wanted = hn::Set(d, value);
  std::int64_t i = 0;
  if (value == value)
    while (i + lanes <= n && hn::AllFalse(d, hn::Eq(hn::LoadU(d, x + i), wanted))) i += lanes;
  while (value == value ? x[i] != value : x[i] == x[i]) ++i;
  return i;
}

}  // namespace lenslet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lenslet {

HWY_EXPORT(sum_kernel);
HWY_EXPORT(add_rows_kernel);
HWY_EXPORT(add_bf16_rows_kernel);
HWY_EXPORT(largest_kernel);
HWY_EXPORT(least_kernel);
HWY_EXPORT(short_extremes_kernel);
HWY_EXPORT(short_sums_kernel);
HWY_EXPORT(exp_sum_kernel);
HWY_EXPORT(place_kernel);

double reduce::row_sum(const float* x, std::int64_t n, Term term) {
  return HWY_DYNAMIC_DISPATCH(sum_kernel)(x, n, term);
}
void reduce::add_rows(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t width, double* sums,
                      Term term) {
  HWY_DYNAMIC_DISPATCH(add_rows_kernel)(x, stride, rows, width, sums, term);
}
void reduce::add_rows(const BFloat16* x, std::int64_t stride, std::int64_t rows, std::int64_t width, double* sums,
                      Term) {
  HWY_DYNAMIC_DISPATCH(add_bf16_rows_kernel)(x, stride, rows, width, sums);
}
float reduce::row_extreme(const float* x, std::int64_t n, bool largest) {
  return largest ? HWY_DYNAMIC_DISPATCH(largest_kernel)(x, n) : HWY_DYNAMIC_DISPATCH(least_kernel)(x, n);
}
void reduce::short_row_extremes(const float* x, std::int64_t n, std::int64_t rows, bool largest, float* y) {
  HWY_DYNAMIC_DISPATCH(short_extremes_kernel)(x, n, rows, largest, y);
}
void reduce::short_row_sums(const float* x, std::int64_t n, std::int64_t rows, Term term, double* sums) {
  HWY_DYNAMIC_DISPATCH(short_sums_kernel)(x, n, rows, term, sums);
}
double reduce::row_exp_sum(const float* x, std::int64_t n, float top) {
  return HWY_DYNAMIC_DISPATCH(exp_sum_kernel)(x, n, top);
}
std::int64_t reduce::row_arg_extreme(const float* x, std::int64_t n, bool largest) {
  return HWY_DYNAMIC_DISPATCH(place_kernel)(x, n, row_extreme(x, n, largest));
}

}  // namespace lenslet
#endif
