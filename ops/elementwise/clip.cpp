// Clip, with bounds as attributes (opset 6) or as optional scalar inputs (opset 11 and later, constant or not).

#include "ops/elementwise/clip.h"

#include <fmt/format.h>

#include <limits>

#include "base/convert.h"
#include "base/cuda_built.h"
#include "ops/core/by_floats.h"
#include "ops/core/checks.h"
#include "ops/core/kernel.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/types.h"
#include "ops/elementwise/unary_cuda.h"
#include "ops/elementwise/unary_kernels.h"

namespace lenslet {

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

/// A missing bound has no effect; with min > max every element becomes max.
class ClipOp final : public Op {
 public:
  std::optional<float> min, max;  ///< of the attribute form

  std::string_view type() const override { return "Clip"; }
  AttributeList attributes() const override {
    AttributeList list;
    if (min) list.emplace_back("min", static_cast<double>(*min));
    if (max) list.emplace_back("max", static_cast<double>(*max));
    return list;
  }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& x = required_input(inputs, 0, "input");
    require_equal_dtypes(inputs);
    for (std::size_t i = 1; i < inputs.size(); ++i)
      // ONNX requires a scalar; exporters also write [1], which every runtime accepts.
      if (inputs[i].present && inputs[i].type.shape.elems() != 1)
        throw Error(ErrorKind::invalid_model, fmt::format("input {} has shape {}, expected a scalar",
                                                          i == 1 ? "min" : "max", inputs[i].type.shape.str()));
    return {x};
  }
  double flops(std::span<const InputInfo>, std::span<const TensorType> outputs) const override {
    return 2.0 * static_cast<double>(outputs[0].shape.elems());
  }
  std::size_t elementwise_inputs() const override { return 1; }

  std::optional<Activation> as_activation(std::span<const InputInfo> inputs) const override {
    if (inputs[0].type.dtype != DType::f32) return std::nullopt;
    float low = min.value_or(-infinity), high = max.value_or(infinity);
    for (std::size_t i = 1; i < inputs.size(); ++i) {
      if (!inputs[i].present) continue;
      if (inputs[i].constant == nullptr) return std::nullopt;
      (i == 1 ? low : high) = inputs[i].constant->values<float>()[0];
    }
    // The attributes' defaults are the largest floats: no bound for finite values.
    if (low == 0 && high >= std::numeric_limits<float>::max()) return Activation{Activation::Kind::relu, 0, 0};
    return Activation{Activation::Kind::clip, low, high};
  }
};

/// 16-bit T, of which the CPU has bfloat16, is compared as float.
template <typename T>
class BoundClip final : public BoundKernel {
 public:
  explicit BoundClip(const Binding& binding) {
    if constexpr (std::is_same_v<N, float>)
      to_ = {binding.op<ClipOp>().min.value_or(-infinity), binding.op<ClipOp>().max.value_or(infinity)};
    const auto number = [](const Tensor& bound) { return convert<N>(*static_cast<const T*>(bound.data())); };
    if (const Tensor* low = binding.constant(1)) to_.low = number(*low);
    if (const Tensor* high = binding.constant(2)) to_.high = number(*high);
  }

  void run(const KernelRun& run) const override {
    const auto* x = run.in<T>(0);
    auto* y = run.out<T>();
    const std::int64_t count = stored_elems(run.inputs[0]);
    const auto computed = [&](std::size_t i) {  // null: to_ says it
      return static_cast<const T*>(i < run.inputs.size() ? run.inputs[i].data() : nullptr);
    };
    const T *low = computed(1), *high = computed(2);
    if (run.cuda != nullptr) {
      if constexpr (cuda_built)
        cuda::clip(*run.cuda, {low, &to_.low}, {high, &to_.high}, dtype_of<T>::value, x, y, count);
      return;
    }
    if constexpr (!std::is_same_v<T, Float16>) {
      const ClipTo<N> to{low != nullptr ? convert<N>(*low) : to_.low, high != nullptr ? convert<N>(*high) : to_.high};
      if constexpr (std::is_same_v<N, float>)
        run.pool->parallel_for(count, elementwise_grain, [&](std::int64_t begin, std::int64_t end, int) {
          map_floats(x + begin, y + begin, end - begin, [&](const float* from, float* into, std::int64_t n) {
            apply_clip(to.low, to.high, from, into, n);
          });
        });
      else
        transform(*run.pool, count, to, y, x);
    }
  }

 private:
  using N = std::conditional_t<is_half<T>, float, T>;
  ClipTo<N> to_{std::numeric_limits<N>::lowest(), std::numeric_limits<N>::max()};
};

constexpr auto kernels =
    on_both({.types = with_brain(dtypes<NumberTypes>),
             .more_on_cuda = dtypes<HalfTypes>,
             .formats_for = formats_of_x,
             .tolerance = 2e-6,
             .in_place = input_bit(0),
             .reads = input_bit(0)},
            bind_typed<BoundClip, WithBrain<NumberTypes>>, bind_typed<BoundClip, WithHalves<NumberTypes>>);

std::shared_ptr<const Op> make(const NodeSpec& spec) {
  auto op = std::make_shared<ClipOp>();
  AttributeReader reader(spec);
  reader.ignore("consumed_inputs");
  if (spec.before(11) && spec.inputs > 1)
    throw Error(ErrorKind::invalid_model, fmt::format("opset {} has the bounds as attributes, not inputs", spec.opset));
  if (spec.before(11) || spec.normalised) {
    if (reader.has("min")) op->min = static_cast<float>(reader.real("min", 0));
    if (reader.has("max")) op->max = static_cast<float>(reader.real("max", 0));
  }
  reader.finish();
  return op;
}

}  // namespace

OpParts clip() { return {make, kernels}; }

}  // namespace lenslet
