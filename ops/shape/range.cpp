// Range: start, start + delta ... up to, not including, limit.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/cuda_built.h"
#include "ops/core/checks.h"
#include "ops/core/grain.h"
#include "ops/core/kernel.h"
#include "ops/core/needs_value.h"
#include "ops/movement/fill_cuda.h"

namespace lenslet {

namespace {

using Numbers = Types<float, double, std::int32_t, std::int64_t>;

template <typename T>
T scalar(const Tensor& tensor, std::string_view name) {
  if (tensor.elems() != 1)
    throw Error(ErrorKind::invalid_model, fmt::format("{} must be a scalar, not {}", name, tensor.shape().str()));
  return tensor.values<T>()[0];
}

// ceil((limit - start) / delta), 0 for the wrong direction.
template <typename T>
std::int64_t count(T start, T limit, T delta) {
  if (delta == T{0}) throw Error(ErrorKind::invalid_model, "delta is 0");
  // In double: exact for all ranges whose result fits a tensor, and free of overflow.
  const double steps =
      std::ceil((static_cast<double>(limit) - static_cast<double>(start)) / static_cast<double>(delta));
  if (std::isnan(steps)) throw Error(ErrorKind::invalid_model, "start, limit or delta is not a number");
  if (steps > 0x1p40) throw Error(ErrorKind::limit, "a range of more than 2^40 elements");
  return steps > 0 ? static_cast<std::int64_t>(steps) : 0;
}

class Range final : public Op {
 public:
  std::string_view type() const override { return "Range"; }
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    constexpr std::string_view names[] = {"start", "limit", "delta"};
    const DType dtype = required_input(inputs, 0, "start").dtype;
    for (std::size_t i = 0; i < 3; ++i) {
      if (required_input(inputs, i, names[i]).dtype != dtype)
        throw Error(ErrorKind::invalid_model, "start, limit and delta must have one type");
      static_cast<void>(known_value(inputs, i, names[i]));
    }
    const std::int64_t length = dispatch(dtype, Numbers(), [&]<typename T>(std::type_identity<T>) {
      return count(scalar<T>(*inputs[0].constant, names[0]), scalar<T>(*inputs[1].constant, names[1]),
                   scalar<T>(*inputs[2].constant, names[2]));
    });
    return {{dtype, Shape{length}}};
  }
};

template <typename T>
class BoundRange final : public BoundKernel {
 public:
  explicit BoundRange(const Binding& binding)
      : start_(scalar<T>(*binding.constant(0), "start")), delta_(scalar<T>(*binding.constant(2), "delta")) {}
  void run(const KernelRun& run) const override {
    std::span<T> to = run.outputs[0].values<T>();
    if constexpr (cuda_built)
      if (run.cuda != nullptr)
        return cuda::fill_range(*run.cuda, static_cast<std::int64_t>(to.size()), start_, delta_, to.data());
    run.pool->parallel_for(
        static_cast<std::int64_t>(to.size()), elementwise_grain, [&](std::int64_t begin, std::int64_t end, int) {
          for (; begin < end; begin += elementwise_grain)
            fill(begin, static_cast<std::int32_t>(std::min(elementwise_grain, end - begin)), to.data() + begin);
        });
  }

 private:
  /// Elements [first, first + count); a 32-bit counter vectorises its conversion to double.
  void fill(std::int64_t first, std::int32_t count, T* to) const {
    for (std::int32_t i = 0; i < count; ++i) {
      // Integers wrap around: the values are in range, but an intermediate product may not be.
      if constexpr (std::is_integral_v<T>)
        to[i] = static_cast<T>(static_cast<std::uint64_t>(start_) +
                               static_cast<std::uint64_t>(first + i) * static_cast<std::uint64_t>(delta_));
      else
        to[i] = static_cast<T>(static_cast<double>(start_) +
                               (static_cast<double>(first) + static_cast<double>(i)) * static_cast<double>(delta_));
    }
  }

  T start_, delta_;
};

std::unique_ptr<const BoundKernel> bind_range(const Binding& binding) {
  return dispatch(binding.problem.outputs()[0].dtype, Numbers(),
                  [&]<typename T>(std::type_identity<T>) { return bind<BoundRange<T>>(binding); });
}

constexpr auto kernels =
    on_both({.types = dtypes<Numbers>, .tolerance = 1e-7, .reads = no_inputs}, bind_range, bind_range);

std::shared_ptr<const Op> make(const NodeSpec& spec) {
  AttributeReader reader(spec);
  if (!spec.before(27)) reader.ignore("stash_type");  // of floats of 16 bits, which are widened
  reader.finish();
  return std::make_shared<Range>();
}

}  // namespace

OpParts range() { return {make, kernels}; }

}  // namespace lenslet
