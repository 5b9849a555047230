// Comparisons, boolean operators and Where: broadcast, one element at a time (masks and shape arithmetic).

#include "ops/elementwise/logic.h"

#include <fmt/format.h>

#include "ops/core/broadcast.h"
#include "ops/core/grain.h"
#include "ops/core/makers.h"
#include "ops/core/type_check.h"
#include "ops/elementwise/logic_cuda.h"

namespace lenslet {

namespace {

template <typename T>
bool compute(LogicKind kind, T a, T b) {
  switch (kind) {
    case LogicKind::equal:
      return a == b;
    case LogicKind::less:
      return a < b;
    case LogicKind::less_or_equal:
      return a <= b;
    case LogicKind::greater:
      return a > b;
    case LogicKind::greater_or_equal:
      return a >= b;
    case LogicKind::land:
      return a != 0 && b != 0;
    case LogicKind::lor:
      return a != 0 || b != 0;
    case LogicKind::lxor:
      return (a != 0) != (b != 0);
    case LogicKind::lnot:
      return a == 0;
  }
  return false;
}

// Booleans are read as bytes: a file may hold others than 0 and 1.
class LogicOp final : public Op {
 public:
  LogicOp(std::string_view type, LogicKind kind) : type_(type), kind_(kind) {}
  std::string_view type() const override { return type_; }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    TensorType y = required_input(inputs, 0, "A");
    if (kind_ >= LogicKind::land)
      require_dtype("input 0", y.dtype, {DType::boolean});
    else if (kind_ == LogicKind::equal)
      require_dtype("input 0", y.dtype,
                    {DType::f32, DType::f64, DType::i8, DType::u8, DType::i32, DType::i64, DType::boolean});
    else
      require_dtype("input 0", y.dtype, {DType::f32, DType::f64, DType::i8, DType::u8, DType::i32, DType::i64});
    for (std::size_t i = 1; i < inputs.size(); ++i) {
      const TensorType& x = required_input(inputs, i, "B");
      if (x.dtype != y.dtype)
        throw Error(ErrorKind::invalid_model,
                    fmt::format("input {} is {}, but input 0 is {}", i, to_string(x.dtype), to_string(y.dtype)));
      y.shape = broadcast_shapes(y.shape, x.shape);
    }
    y.dtype = DType::boolean;
    return {y};
  }

  bool runs_in(Format, std::span<const InputInfo>) const override { return true; }

  void run_cpu(const RunContext& context) const override {
    switch (context.inputs[0].dtype()) {
      case DType::f32:
        return run<float>(context);
      case DType::f64:
        return run<double>(context);
      case DType::i8:
        return run<std::int8_t>(context);
      case DType::i32:
        return run<std::int32_t>(context);
      case DType::i64:
        return run<std::int64_t>(context);
      default:
        return run<std::uint8_t>(context);
    }
  }

  std::optional<std::string> refuse_cuda(std::span<const InputInfo>) const override { return std::nullopt; }
  void run_cuda(const CudaRun& run) const override {
    if constexpr (cuda_built) cuda::logic(run.context, kind_, run.inputs.front(), run.inputs.back(), run.outputs[0]);
  }

 private:
  template <typename T>
  void run(const RunContext& context) const {
    const Tensor& a = context.inputs[0];
    const Tensor& b = kind_ == LogicKind::lnot ? a : context.inputs[1];
    Tensor& y = context.outputs[0];
    const BroadcastLoops::Operand operands[] = {
        {&y.shape(), y.format()}, {&a.shape(), a.format()}, {&b.shape(), b.format()}};
    const BroadcastLoops loops(y.shape(), y.format(), operands);
    const auto* a0 = static_cast<const T*>(a.data());
    const auto* b0 = static_cast<const T*>(b.data());
    auto* y0 = static_cast<std::uint8_t*>(y.data());
    const std::int64_t sa = loops.inner_stride(1), sb = loops.inner_stride(2);
    for_each_run(loops, context.pool, elementwise_grain, [&](const auto& at, std::int64_t n) {
      for (std::int64_t i = 0; i < n; ++i)
        y0[at[0] + i] = compute<T>(kind_, a0[at[1] + i * sa], b0[at[2] + i * sb]) ? 1 : 0;
    });
  }

  std::string_view type_;
  LogicKind kind_;
};

class WhereOp final : public Op {
 public:
  std::string_view type() const override { return "Where"; }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& condition = required_input(inputs, 0, "condition");
    const TensorType& x = required_input(inputs, 1, "X");
    const TensorType& y = required_input(inputs, 2, "Y");
    require_dtype("input condition", condition.dtype, {DType::boolean});
    if (x.dtype != y.dtype)
      throw Error(ErrorKind::invalid_model,
                  fmt::format("input X is {}, but input Y is {}", to_string(x.dtype), to_string(y.dtype)));
    return {{x.dtype, broadcast_shapes(broadcast_shapes(condition.shape, x.shape), y.shape)}};
  }

  bool runs_in(Format, std::span<const InputInfo>) const override { return true; }

  void run_cpu(const RunContext& context) const override {
    // Only the size of an element matters.
    switch (dtype_bytes(context.outputs[0].dtype())) {
      case 1:
        return run<std::uint8_t>(context);
      case 2:
        return run<std::uint16_t>(context);
      case 4:
        return run<std::uint32_t>(context);
      default:
        return run<std::uint64_t>(context);
    }
  }

  std::optional<std::string> refuse_cuda(std::span<const InputInfo>) const override { return std::nullopt; }
  void run_cuda(const CudaRun& run) const override {
    if constexpr (cuda_built) cuda::where(run.context, run.inputs[0], run.inputs[1], run.inputs[2], run.outputs[0]);
  }

 private:
  template <typename T>
  void run(const RunContext& context) const {
    const Tensor &c = context.inputs[0], &a = context.inputs[1], &b = context.inputs[2];
    Tensor& y = context.outputs[0];
    const BroadcastLoops::Operand operands[] = {
        {&y.shape(), y.format()}, {&c.shape(), c.format()}, {&a.shape(), a.format()}, {&b.shape(), b.format()}};
    const BroadcastLoops loops(y.shape(), y.format(), operands);
    const auto* c0 = static_cast<const std::uint8_t*>(c.data());
    const auto* a0 = static_cast<const T*>(a.data());
    const auto* b0 = static_cast<const T*>(b.data());
    auto* y0 = static_cast<T*>(y.data());
    const std::int64_t sc = loops.inner_stride(1), sa = loops.inner_stride(2), sb = loops.inner_stride(3);
    for_each_run(loops, context.pool, elementwise_grain, [&](const auto& at, std::int64_t n) {
      for (std::int64_t i = 0; i < n; ++i)
        y0[at[0] + i] = c0[at[1] + i * sc] != 0 ? a0[at[2] + i * sa] : b0[at[3] + i * sb];
    });
  }
};

std::shared_ptr<const Op> make(std::string_view type, LogicKind kind, const NodeSpec& spec) {
  AttributeReader(spec.attributes).finish();
  return std::make_shared<LogicOp>(type, kind);
}

}  // namespace

std::shared_ptr<const Op> make_equal(const NodeSpec& s) { return make("Equal", LogicKind::equal, s); }
std::shared_ptr<const Op> make_less(const NodeSpec& s) { return make("Less", LogicKind::less, s); }
std::shared_ptr<const Op> make_less_or_equal(const NodeSpec& s) {
  return make("LessOrEqual", LogicKind::less_or_equal, s);
}
std::shared_ptr<const Op> make_greater(const NodeSpec& s) { return make("Greater", LogicKind::greater, s); }
std::shared_ptr<const Op> make_greater_or_equal(const NodeSpec& s) {
  return make("GreaterOrEqual", LogicKind::greater_or_equal, s);
}
std::shared_ptr<const Op> make_and(const NodeSpec& s) { return make("And", LogicKind::land, s); }
std::shared_ptr<const Op> make_or(const NodeSpec& s) { return make("Or", LogicKind::lor, s); }
std::shared_ptr<const Op> make_xor(const NodeSpec& s) { return make("Xor", LogicKind::lxor, s); }
std::shared_ptr<const Op> make_not(const NodeSpec& s) { return make("Not", LogicKind::lnot, s); }

std::shared_ptr<const Op> make_where(const NodeSpec& s) {
  AttributeReader(s.attributes).finish();
  return std::make_shared<WhereOp>();
}

}  // namespace lenslet
