#pragma once
// Elementwise functions over whole tensors on the CPU; elementwise.cuh applies the same functions on the device.

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <tuple>
#include <type_traits>

#include "ops/core/broadcast.h"
#include "ops/core/grain.h"
#include "ops/core/kernel.h"

namespace lenslet {

/// An operand along a run: contiguous, one number for all, or strided. The compiler vectorises the first two.
template <typename X>
struct Neighbours {
  const X* from;
  X operator[](std::int64_t i) const { return from[i]; }
};
template <typename X>
struct Same {
  X value;
  X operator[](std::int64_t) const { return value; }
};
template <typename X>
struct Strided {
  const X* from;
  std::int64_t step;
  X operator[](std::int64_t i) const { return from[i * step]; }
};
/// y[i] = f(x[i]...) for i < n. All by value, so that stores to y cannot alias the parameters.
template <typename F, typename Y, typename... X>
void transform_run(std::int64_t n, F f, Y* y, X... x) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = f(x[i]...);
}

/// Calls f with the static type of each of `x`.
template <typename F, typename... X>
void with_operands(const F& f, Strided<X>... x) {
  if (!((x.step == 0 || x.step == 1) && ...)) return f(x...);
  const auto next = [&f]<typename... Done, typename First, typename... Rest>(
                        const auto& self, std::tuple<Done...> done, Strided<First> first, Strided<Rest>... rest) {
    const auto with = [&](auto operand) {
      const auto more = std::tuple_cat(done, std::tuple(operand));
      if constexpr (sizeof...(rest) == 0)
        std::apply(f, more);
      else
        self(self, more, rest...);
    };
    if (first.step == 1)
      with(Neighbours<First>{first.from});
    else
      with(Same<First>{*first.from});
  };
  next(next, std::tuple<>(), x...);
}

/// y[i] = f(x[i]) for i < count; y may be x.
template <typename F, typename Y, typename X>
void transform(ThreadPool& pool, std::int64_t count, const F& f, Y* y, const X* x) {
  pool.parallel_for(count, elementwise_grain, [&](std::int64_t begin, std::int64_t end, int) {
    transform_run(end - begin, f, y + begin, Neighbours<X>{x + begin});
  });
}

/// The same for several operands with strides in `loops`; y may be an operand with its layout. An F with `slow` takes
/// longer than the addressing: one loop serves all strides.
template <typename F, typename Y, typename... X>
void transform(ThreadPool& pool, const BroadcastLoops& loops, const F& f, Y* y, const X*... x) {
  for_each_run(loops, pool, elementwise_grain, [&](const auto& at, std::int64_t n) {
    std::size_t operand = 0;
    const auto along = [&]<typename T>(const T* data) {
      ++operand;
      return Strided<T>{data + at[operand], loops.inner_stride(static_cast<int>(operand))};
    };
    const std::tuple operands{along(x)...};  // in braces: in this order
    const auto run = [&](auto... operand_of) { transform_run(n, f, y + at[0], operand_of...); };
    if constexpr (requires { F::slow; })
      std::apply(run, operands);
    else
      std::apply([&](auto... strided) { with_operands(run, strided...); }, operands);
  });
}

/// For SimpleKernel::bind: Bound<T> with input 0's T of the list.
template <template <typename> class Bound, typename List>
std::unique_ptr<const BoundKernel> bind_typed(const Binding& binding) {
  return dispatch(binding.problem.inputs()[0].type.dtype, List(),
                  [&]<typename T>(std::type_identity<T>) { return bind<Bound<T>>(binding); });
}

/// Stored elements of `x`, padding of a last channel block included: kernels that process all in order accept any dense
/// or blocked format.
inline std::int64_t stored_elems(const Tensor& x) {
  return static_cast<std::int64_t>(x.bytes() / dtype_bytes(x.dtype()));
}

/// SimpleKernel::formats_for of kernels that process x and y alike over stored_elems(): a constant x is nchw.
inline std::span<const Format> formats_of_x(const Problem& problem) {
  return problem.inputs()[0].constant != nullptr ? std::span<const Format>(nchw_only) : nchw_or_nhwc;
}

/// Operands other than inputs: output 0, and a single number.
inline constexpr int the_output = -1, one_number = -2;

/// Loops over output 0 and operands: input indices, or the constants above.
inline BroadcastLoops loops_of(const Binding& binding, std::initializer_list<int> operands) {
  static const Shape number;
  std::array<BroadcastLoops::Operand, BroadcastLoops::max_operands> all{
      {{&binding.output_shape(), binding.output_format()}}};
  std::size_t count = 1;
  for (const int operand : operands) {
    const auto input = static_cast<std::size_t>(operand);
    if (operand == one_number)
      all[count++] = {&number};
    else if (operand == the_output)
      all[count++] = all[0];
    else
      all[count++] = {&binding.shape(input), binding.format(input)};
  }
  return {binding.output_shape(), binding.output_format(), std::span(all).first(count)};
}

}  // namespace lenslet
