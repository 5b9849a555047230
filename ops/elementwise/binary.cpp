#include "ops/elementwise/binary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "ops/core/broadcast.h"
#include "ops/core/grain.h"
#include "ops/core/makers.h"
#include "ops/core/saturate.h"
#include "ops/core/type_check.h"
#include "ops/elementwise/binary_cuda.h"

namespace lenslet {

namespace {

[[noreturn]] void division_by_zero() { throw Error(ErrorKind::invalid_argument, "integer division by zero"); }

// Integers wrap around as two's complement does: computed unsigned, where overflow is defined.
template <typename T>
T compute(BinaryKind kind, T a, T b) {
  using U = std::uint64_t;
  constexpr bool whole = std::is_integral_v<T>;
  switch (kind) {
    case BinaryKind::add:
      if constexpr (whole) return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
      return static_cast<T>(a + b);
    case BinaryKind::sub:
      if constexpr (whole) return static_cast<T>(static_cast<U>(a) - static_cast<U>(b));
      return static_cast<T>(a - b);
    case BinaryKind::mul:
      if constexpr (whole) return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
      return static_cast<T>(a * b);
    case BinaryKind::div:
      if constexpr (whole) {
        if (b == 0) division_by_zero();
        // The least integer divided by -1 wraps around to itself.
        if constexpr (std::is_signed_v<T>)
          if (b == -1) return static_cast<T>(U{0} - static_cast<U>(a));
      }
      return static_cast<T>(a / b);
    case BinaryKind::max:
      return b != b || b > a ? b : a;
    case BinaryKind::min:
      return b != b || b < a ? b : a;
    case BinaryKind::prelu:
      return a < 0 ? static_cast<T>(static_cast<U>(a) * static_cast<U>(b)) : a;
    case BinaryKind::pow:
      break;
  }
  return a;
}

// Whole powers by squaring, wrapping around; a negative exponent leaves 1/base^n truncated.
template <typename T>
T whole_pow(T base, std::int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) division_by_zero();
    if (base == 1) return T{1};
    if (std::is_signed_v<T> && base == static_cast<T>(-1)) return static_cast<T>(exponent % 2 == 0 ? 1 : -1);
    return T{0};
  }
  std::uint64_t result = 1, square = static_cast<std::uint64_t>(base);
  for (; exponent > 0; exponent >>= 1, square *= square)
    if (exponent & 1) result *= square;
  return static_cast<T>(result);
}

struct Run {
  std::int64_t a_stride = 0, b_stride = 0, n = 0;
};

template <typename T>
void apply(BinaryKind kind, const T* a, const T* b, T* y, const Run& run) {
  if constexpr (std::is_same_v<T, float>)
    apply_binary(kind, a, run.a_stride, b, run.b_stride, y, run.n);
  else
    for (std::int64_t i = 0; i < run.n; ++i) y[i] = compute(kind, a[i * run.a_stride], b[i * run.b_stride]);
}

template <typename T, typename E>
void apply_pow(const T* a, const E* b, T* y, const Run& run) {
  if constexpr (std::is_same_v<T, float> && std::is_same_v<E, float>) {
    apply_binary(BinaryKind::pow, a, run.a_stride, b, run.b_stride, y, run.n);
  } else {
    for (std::int64_t i = 0; i < run.n; ++i) {
      const T base = a[i * run.a_stride];
      const E exponent = b[i * run.b_stride];
      if constexpr (std::is_integral_v<T> && std::is_integral_v<E>)
        y[i] = whole_pow(base, static_cast<std::int64_t>(exponent));
      else if constexpr (std::is_integral_v<T>)
        y[i] = saturate<T>(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
      else
        y[i] = static_cast<T>(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
    }
  }
}

// y = f(a, b) along the runs of y's memory; a or b may be y.
template <typename A, typename B, typename Y, typename F>
void broadcast(const Tensor& a, const Tensor& b, Tensor& y, ThreadPool& pool, const F& f) {
  const BroadcastLoops::Operand operands[] = {
      {&y.shape(), y.format()}, {&a.shape(), a.format()}, {&b.shape(), b.format()}};
  const BroadcastLoops loops(y.shape(), y.format(), operands);
  const auto* a0 = static_cast<const A*>(a.data());
  const auto* b0 = static_cast<const B*>(b.data());
  auto* y0 = static_cast<Y*>(y.data());
  for_each_run(loops, pool, elementwise_grain, [&](const auto& at, std::int64_t n) {
    f(a0 + at[1], b0 + at[2], y0 + at[0], Run{loops.inner_stride(1), loops.inner_stride(2), n});
  });
}

template <typename T>
void run_fold(const RunContext& context, BinaryKind kind, bool mean) {
  Tensor& y = context.outputs[0];
  const auto step = [&](BinaryKind k, const Tensor& a, const Tensor& b) {
    broadcast<T, T, T>(a, b, y, context.pool,
                       [k](const T* pa, const T* pb, T* py, const Run& run) { apply(k, pa, pb, py, run); });
  };
  // One input: the larger of it and itself is a copy in the output's layout.
  if (context.inputs.size() == 1) return step(BinaryKind::max, context.inputs[0], context.inputs[0]);
  step(kind, context.inputs[0], context.inputs[1]);
  for (std::size_t i = 2; i < context.inputs.size(); ++i) step(kind, y, context.inputs[i]);
  if (!mean) return;
  T count = static_cast<T>(context.inputs.size());
  step(BinaryKind::div, y, Tensor::view(dtype_of<T>::value, Shape{}, &count));
}

template <typename T>
void run_pow(const RunContext& context) {
  const auto with = [&]<typename E>(E) {
    broadcast<T, E, T>(context.inputs[0], context.inputs[1], context.outputs[0], context.pool,
                       [](const T* a, const E* b, T* y, const Run& run) { apply_pow(a, b, y, run); });
  };
  switch (context.inputs[1].dtype()) {
    case DType::f64:
      return with(double{});
    case DType::i32:
      return with(std::int32_t{});
    case DType::i64:
      return with(std::int64_t{});
    default:
      return with(float{});
  }
}

// An exponent known to be the number 2 as a float.
bool is_two(const Tensor& exponent) {
  return !exponent.empty() && exponent.dtype() == DType::f32 && exponent.elems() == 1 &&
         exponent.values<float>()[0] == 2;
}

// Are these known integers, none of them below 0?
bool never_negative(const Tensor* exponents) {
  const auto all = []<typename T>(std::span<const T> values) {
    return std::all_of(values.begin(), values.end(), [](T value) { return value >= 0; });
  };
  if (exponents == nullptr) return false;
  return exponents->dtype() == DType::i32 ? all(exponents->values<std::int32_t>())
                                          : all(exponents->values<std::int64_t>());
}

bool whole(DType dtype) { return dtype != DType::f32 && dtype != DType::f64; }

std::shared_ptr<const Op> make(std::string_view type, BinaryKind kind, const NodeSpec& spec) {
  AttributeReader reader(spec.attributes);
  reader.ignore("consumed_inputs");
  // Broadcasting before opset 7 was another operation: the second operand's position came from `axis`.
  for (const char* name : {"broadcast", "axis"})
    if (reader.has(name))
      throw Error(ErrorKind::unsupported,
                  fmt::format("attribute '{}' belongs to opset 6 and earlier: export with opset 7 or later", name));
  reader.finish();
  return std::make_shared<BinaryOp>(type, kind, spec.inputs);
}

}  // namespace

std::vector<TensorType> BinaryOp::infer(std::span<const InputInfo> inputs) const {
  TensorType y = required_input(inputs, 0, "A");
  if (kind == BinaryKind::pow) {
    require_dtype("input X", y.dtype, {DType::f32, DType::f64, DType::i32, DType::i64});
    require_dtype("input Y", required_input(inputs, 1, "Y").dtype, {DType::f32, DType::f64, DType::i32, DType::i64});
  } else if (type_ == "Sum" || type_ == "Mean") {
    require_dtype("input 0", y.dtype, {DType::f32, DType::f64});
  } else {
    require_dtype("input 0", y.dtype,
                  {DType::f32, DType::f64, DType::i8, DType::u8, DType::i16, DType::u16, DType::i32, DType::i64});
  }
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    const TensorType& x = required_input(inputs, i, "operand");
    if (x.dtype != y.dtype && kind != BinaryKind::pow)
      throw Error(ErrorKind::invalid_model,
                  fmt::format("input {} is {}, but input 0 is {}", i, to_string(x.dtype), to_string(y.dtype)));
    y.shape = broadcast_shapes(y.shape, x.shape);
  }
  // Known divisors are checked here, so that a model with a constant zero is refused at load.
  if (kind == BinaryKind::div && whole(y.dtype) && inputs[1].constant != nullptr) {
    const Tensor& divisor = *inputs[1].constant;
    const auto* bytes = static_cast<const unsigned char*>(divisor.data());
    const std::size_t size = dtype_bytes(divisor.dtype());
    for (std::size_t i = 0; i < divisor.bytes(); i += size) {
      bool zero = true;
      for (std::size_t k = 0; k < size; ++k) zero = zero && bytes[i + k] == 0;
      if (zero) throw Error(ErrorKind::invalid_model, "integer division by zero");
    }
  }
  return {y};
}

double BinaryOp::flops(std::span<const InputInfo> inputs, std::span<const TensorType> outputs) const {
  const double elems = static_cast<double>(outputs[0].shape.elems());
  return elems * (static_cast<double>(inputs.size()) - (mean() ? 0 : 1));
}

void BinaryOp::run_cpu(const RunContext& context) const {
  const DType dtype = context.inputs[0].dtype();
  if (kind == BinaryKind::pow) {
    switch (dtype) {
      case DType::f64:
        return run_pow<double>(context);
      case DType::i32:
        return run_pow<std::int32_t>(context);
      case DType::i64:
        return run_pow<std::int64_t>(context);
      default:
        return run_pow<float>(context);
    }
  }
  switch (dtype) {
    case DType::f64:
      return run_fold<double>(context, kind, mean());
    case DType::i8:
      return run_fold<std::int8_t>(context, kind, false);
    case DType::u8:
      return run_fold<std::uint8_t>(context, kind, false);
    case DType::i16:
      return run_fold<std::int16_t>(context, kind, false);
    case DType::u16:
      return run_fold<std::uint16_t>(context, kind, false);
    case DType::i32:
      return run_fold<std::int32_t>(context, kind, false);
    case DType::i64:
      return run_fold<std::int64_t>(context, kind, false);
    default:
      return run_fold<float>(context, kind, mean());
  }
}

std::optional<std::string> BinaryOp::refuse_cuda(std::span<const InputInfo> inputs) const {
  if (!whole(inputs[0].type.dtype)) return std::nullopt;
  if (kind == BinaryKind::div && inputs[1].constant == nullptr)
    return "an integer divisor that is computed might be 0, which only the CPU reports";
  if (kind == BinaryKind::pow && whole(inputs[1].type.dtype) && !never_negative(inputs[1].constant))
    return "an integer exponent that is not a constant of 0 and more divides, perhaps by 0, which only the CPU reports";
  return std::nullopt;
}

void BinaryOp::run_cuda(const CudaRun& run) const {
  const std::span<const Tensor> x = run.inputs;
  Tensor& y = run.outputs[0];
  // Nearly all powers are squares.
  const bool square = kind == BinaryKind::pow && is_two(run.host_inputs[1]);
  if constexpr (cuda_built) {
    // One input: the larger of it and itself is a copy in the output's layout.
    if (x.size() == 1) return cuda::binary(run.context, BinaryKind::max, x[0], x[0], y);
    if (square) return cuda::binary(run.context, BinaryKind::mul, x[0], x[0], y);
    if (kind == BinaryKind::pow) return cuda::pow(run.context, x[0], x[1], y);
    for (std::size_t i = 1; i < x.size(); ++i) {
      const Tensor& sum = i == 1 ? x[0] : y;
      if (mean() && i + 1 == x.size())
        cuda::add_and_divide(run.context, sum, x[i], static_cast<int>(x.size()), y);
      else
        cuda::binary(run.context, kind, sum, x[i], y);
    }
  }
}

std::shared_ptr<const Op> make_add(const NodeSpec& spec) { return make("Add", BinaryKind::add, spec); }
std::shared_ptr<const Op> make_sub(const NodeSpec& spec) { return make("Sub", BinaryKind::sub, spec); }
std::shared_ptr<const Op> make_mul(const NodeSpec& spec) { return make("Mul", BinaryKind::mul, spec); }
std::shared_ptr<const Op> make_div(const NodeSpec& spec) { return make("Div", BinaryKind::div, spec); }
std::shared_ptr<const Op> make_pow(const NodeSpec& spec) { return make("Pow", BinaryKind::pow, spec); }
std::shared_ptr<const Op> make_max(const NodeSpec& spec) { return make("Max", BinaryKind::max, spec); }
std::shared_ptr<const Op> make_min(const NodeSpec& spec) { return make("Min", BinaryKind::min, spec); }
std::shared_ptr<const Op> make_sum(const NodeSpec& spec) { return make("Sum", BinaryKind::add, spec); }
std::shared_ptr<const Op> make_mean(const NodeSpec& spec) { return make("Mean", BinaryKind::add, spec); }

}  // namespace lenslet
