// Cast between all numeric types and bool.
//   float -> integer: towards zero; beyond the integer's range the nearest end, NaN gives 0 (ONNX leaves both open)
//   integer -> smaller integer: the low bits
//   anything -> bool: 0 is false, all else (NaN too) true
//   -> f16, bf16: to nearest even, overflow to infinity (`saturate` of opset 19 concerns 8-bit floats only)

#include <cstring>
#include <type_traits>

#include "base/half.h"
#include "ops/core/grain.h"
#include "ops/core/makers.h"
#include "ops/core/onnx_types.h"
#include "ops/core/saturate.h"
#include "ops/core/type_check.h"
#include "ops/elementwise/cast_cuda.h"

namespace lenslet {

namespace {

// One tag a type: how it is stored, and as what it is computed with.
template <typename T>
struct Plain {
  using Stored = T;
  static T load(T value) { return value; }
};
struct Half {
  using Stored = std::uint16_t;
  static float load(std::uint16_t bits) { return f32_from_f16(bits); }
};
struct Brain {
  using Stored = std::uint16_t;
  static float load(std::uint16_t bits) { return f32_from_bf16(bits); }
};
struct Boolean {
  using Stored = std::uint8_t;
  static std::uint8_t load(std::uint8_t value) { return value != 0 ? 1 : 0; }
};

template <typename To, typename V>
typename To::Stored convert(V value) {
  if constexpr (std::is_same_v<To, Boolean>) {
    return value != V{0} ? 1 : 0;
  } else if constexpr (std::is_same_v<To, Half>) {
    if constexpr (std::is_same_v<V, float>) return f16_from_f32(value);
    return f16_from_f64(static_cast<double>(value));
  } else if constexpr (std::is_same_v<To, Brain>) {
    if constexpr (std::is_same_v<V, float>) return bf16_from_f32(value);
    return bf16_from_f64(static_cast<double>(value));
  } else if constexpr (std::is_floating_point_v<V> && std::is_integral_v<typename To::Stored>) {
    return saturate<typename To::Stored>(static_cast<double>(value));
  } else {
    return static_cast<typename To::Stored>(value);
  }
}

template <typename From, typename To>
void cast(const void* from_bytes, void* to_bytes, std::int64_t count, ThreadPool& pool) {
  const auto* from = static_cast<const typename From::Stored*>(from_bytes);
  auto* to = static_cast<typename To::Stored*>(to_bytes);
  pool.parallel_for(count, elementwise_grain, [=](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) to[i] = convert<To>(From::load(from[i]));
  });
}

// Calls f with the tag of a type.
template <typename F>
void with_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32:
      return f(Plain<float>{});
    case DType::f64:
      return f(Plain<double>{});
    case DType::f16:
      return f(Half{});
    case DType::bf16:
      return f(Brain{});
    case DType::i8:
      return f(Plain<std::int8_t>{});
    case DType::u8:
      return f(Plain<std::uint8_t>{});
    case DType::i16:
      return f(Plain<std::int16_t>{});
    case DType::u16:
      return f(Plain<std::uint16_t>{});
    case DType::i32:
      return f(Plain<std::int32_t>{});
    case DType::i64:
      return f(Plain<std::int64_t>{});
    case DType::boolean:
      return f(Boolean{});
  }
}

class Cast final : public Op {
 public:
  explicit Cast(DType to) : to_(to) {}

  std::string_view type() const override { return "Cast"; }
  AttributeList attributes() const override { return {{"to", dtype_to_onnx(to_)}}; }
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    return {{to_, required_input(inputs, 0, "input").shape}};
  }
  bool runs_in(Format, std::span<const InputInfo>) const override { return true; }
  bool may_overwrite(int input) const override { return input == 0; }
  double tolerance(std::span<const InputInfo>) const override { return 0; }
  void run_cpu(const RunContext& context) const override {
    const Tensor& from = context.inputs[0];
    Tensor& to = context.outputs[0];
    with_type(from.dtype(), [&](auto from_type) {
      with_type(to.dtype(), [&](auto to_type) {
        cast<decltype(from_type), decltype(to_type)>(from.data(), to.data(), from.elems(), context.pool);
      });
    });
  }
  std::optional<std::string> refuse_cuda(std::span<const InputInfo>) const override { return std::nullopt; }
  void run_cuda(const CudaRun& run) const override {
    if constexpr (cuda_built) cuda::cast(run.context, run.inputs[0], run.outputs[0]);
  }

 private:
  DType to_;
};

}  // namespace

std::shared_ptr<const Op> make_cast(const NodeSpec& spec) {
  AttributeReader reader(spec.attributes);
  const DType to = dtype_from_onnx(reader.required_integer("to"));
  if (spec.opset >= 19) reader.ignore("saturate");
  reader.finish();
  return std::make_shared<Cast>(to);
}

}  // namespace lenslet
