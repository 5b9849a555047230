#pragma once
// What a reduction accumulates, on the CPU and on CUDA.
//
// A Fold has the types In (elements), Out (results) and Rule (what is only known at run time) and
//   explicit Fold(rule)         of nothing
//   add(x, i, rule)             element i of those reduced
//   merge(other, rule)          what another thread, or another chain of additions, has folded
//   result(count, rule) -> Out  of `count` elements
// and, of floats, `neutral(rule)`: adding it behind the elements changes no result. It is trivially copyable.

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "base/cuda/host_device.h"

namespace lenslet {

/// The Reduce family, by what is accumulated and the final function.
enum class ReduceKind : std::uint8_t { sum, mean, max, min, prod, sum_square, l1, l2, log_sum, log_sum_exp };

namespace reduce {

/// Accumulator type: double for floating point; integers modulo 2^64, as ONNX's int64 sums wrap.
template <typename T>
using Sum = std::conditional_t<std::is_floating_point_v<T>, double, std::uint64_t>;

enum class Term { value, square, magnitude };
/// The function of the sum; integers have only none and mean.
enum class Finish { none, mean, root, log };
struct NoRule {};

template <typename T, Term term>
struct SumFold {
  using In = T;
  using Out = T;
  using Rule = Finish;
  static constexpr Term summed = term;
  LENSLET_HOST_DEVICE static constexpr T neutral(Rule) { return 0; }
  Sum<T> sum = 0;

  LENSLET_HOST_DEVICE explicit SumFold(Rule = {}) {}
  LENSLET_HOST_DEVICE void add(T x, std::int64_t, Rule) {
    const auto wide = static_cast<Sum<T>>(x);
    if constexpr (term == Term::square)
      sum += wide * wide;
    else if constexpr (term == Term::value)
      sum += wide;
    else if constexpr (std::is_floating_point_v<T>)
      sum += std::fabs(wide);
    else
      sum += x < T{0} ? Sum<T>{0} - wide : wide;
  }
  LENSLET_HOST_DEVICE void merge(const SumFold& other, Rule) { sum += other.sum; }
  LENSLET_HOST_DEVICE T result(std::int64_t count, Rule finish) const {
    if constexpr (std::is_floating_point_v<T>) {
      if (finish == Finish::mean) return static_cast<T>(sum / static_cast<double>(count));
      if (finish == Finish::root) return static_cast<T>(std::sqrt(sum));
      return static_cast<T>(finish == Finish::log ? std::log(sum) : sum);
    } else {
      if (finish != Finish::mean) return static_cast<T>(sum);
      return count == 0 ? T{0} : static_cast<T>(static_cast<std::int64_t>(sum) / count);
    }
  }
};

template <typename T>
struct ProductFold {
  using In = T;
  using Out = T;
  using Rule = NoRule;
  LENSLET_HOST_DEVICE static constexpr T neutral(Rule) { return 1; }
  Sum<T> product = 1;

  LENSLET_HOST_DEVICE explicit ProductFold(Rule = {}) {}
  LENSLET_HOST_DEVICE void add(T x, std::int64_t, Rule) { product *= static_cast<Sum<T>>(x); }
  LENSLET_HOST_DEVICE void merge(const ProductFold& other, Rule) { product *= other.product; }
  LENSLET_HOST_DEVICE T result(std::int64_t, Rule) const { return static_cast<T>(product); }
};

/// Largest and least values of T; infinite where possible.
template <typename T>
inline constexpr T least_value = std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity()
                                                                      : std::numeric_limits<T>::lowest();
template <typename T>
inline constexpr T greatest_value = std::numeric_limits<T>::has_infinity ? std::numeric_limits<T>::infinity()
                                                                         : std::numeric_limits<T>::max();

/// NaN wins, as in NumPy. Without elements: the least (greatest) value of T.
template <typename T, bool largest>
struct ExtremeFold {
  using In = T;
  using Out = T;
  using Rule = NoRule;
  LENSLET_HOST_DEVICE static constexpr T neutral(Rule) { return largest ? least_value<T> : greatest_value<T>; }
  T best = neutral({});

  LENSLET_HOST_DEVICE explicit ExtremeFold(Rule = {}) {}
  LENSLET_HOST_DEVICE void add(T x, std::int64_t, Rule) {
    if ((largest ? x > best : x < best) || x != x) best = x;
  }
  LENSLET_HOST_DEVICE void merge(const ExtremeFold& other, Rule rule) { add(other.best, 0, rule); }
  LENSLET_HOST_DEVICE T result(std::int64_t, Rule) const { return best; }
};

/// log(sum(exp(x))) without overflow: the sum is relative to the largest element so far. `Exponent` is the type of the
/// powers, each at most 1: float suffices where it is faster.
template <typename T, typename Exponent>
struct LogSumExpFold {
  using In = T;
  using Out = T;
  using Rule = NoRule;
  LENSLET_HOST_DEVICE static constexpr Exponent neutral(Rule) { return least_value<Exponent>; }
  double sum = 0;
  Exponent largest = neutral({});

  LENSLET_HOST_DEVICE explicit LogSumExpFold(Rule = {}) {}
  LENSLET_HOST_DEVICE void add(T x, std::int64_t, Rule) { join(static_cast<Exponent>(x), 1); }
  LENSLET_HOST_DEVICE void merge(const LogSumExpFold& other, Rule) {
    if (other.sum != 0) join(other.largest, other.sum);
  }
  LENSLET_HOST_DEVICE T result(std::int64_t, Rule) const {
    return static_cast<T>(sum == 0 ? static_cast<double>(neutral({})) : std::log(sum) + static_cast<double>(largest));
  }

 private:
  // Elements of -infinity (or two of +infinity) would give inf - inf.
  LENSLET_HOST_DEVICE static double scaled(Exponent at, double amount, Exponent most) {
    return at == most ? amount : amount * static_cast<double>(std::exp(at - most));
  }
  LENSLET_HOST_DEVICE void join(Exponent at, double amount) {
    const Exponent most = largest < at ? at : largest;
    sum = scaled(largest, sum, most) + scaled(at, amount, most);
    largest = most;
  }
};

/// Calls f(std::type_identity<Fold>(), rule) with the fold of `kind` over T; integers have no l2, log_sum and
/// log_sum_exp.
template <typename T, typename Exponent, typename F>
void with_fold(ReduceKind kind, const F& f) {
  constexpr std::type_identity<SumFold<T, Term::value>> values;
  constexpr std::type_identity<SumFold<T, Term::square>> squares;
  switch (kind) {
    case ReduceKind::sum:
      return f(values, Finish::none);
    case ReduceKind::mean:
      return f(values, Finish::mean);
    case ReduceKind::log_sum:
      return f(values, Finish::log);
    case ReduceKind::sum_square:
      return f(squares, Finish::none);
    case ReduceKind::l2:
      return f(squares, Finish::root);
    case ReduceKind::l1:
      return f(std::type_identity<SumFold<T, Term::magnitude>>(), Finish::none);
    case ReduceKind::max:
      return f(std::type_identity<ExtremeFold<T, true>>(), NoRule());
    case ReduceKind::min:
      return f(std::type_identity<ExtremeFold<T, false>>(), NoRule());
    case ReduceKind::prod:
      return f(std::type_identity<ProductFold<T>>(), NoRule());
    case ReduceKind::log_sum_exp:
      if constexpr (std::is_floating_point_v<T>) return f(std::type_identity<LogSumExpFold<T, Exponent>>(), NoRule());
  }
}

}  // namespace reduce
}  // namespace lenslet
