// Comparisons, boolean operators and Where, with broadcasting.

#include "ops/elementwise/logic.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/cuda_built.h"
#include "ops/core/checks.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/logic_cuda.h"
#include "ops/elementwise/types.h"

namespace lenslet {

namespace {

struct Row {
  std::string_view name;
  LogicKind kind;
};
#define LENSLET_ROW(NAME, ...) {#NAME, LogicKind::NAME},
constexpr Row table[] = {LENSLET_LOGIC_KINDS(LENSLET_ROW)};
#undef LENSLET_ROW
/// IsInf by what it detects: negative (1) and positive (2) infinities.
constexpr Row infinities[] = {{"IsInf", LogicKind::IsNoInf},
                              {"IsInf", LogicKind::IsNegativeInf},
                              {"IsInf", LogicKind::IsPositiveInf},
                              {"IsInf", LogicKind::IsInf}};

class LogicOp final : public Op {
 public:
  explicit LogicOp(const Row& row) : row_(row) {}
  std::string_view type() const override { return row_.name; }
  LogicKind kind() const { return row_.kind; }
  AttributeList attributes() const override {
    if (row_.name != "IsInf") return {};
    const auto detects = &row_ - infinities;
    return {{"detect_negative", std::int64_t{detects & 1}}, {"detect_positive", std::int64_t{detects >> 1}}};
  }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    TensorType y{DType::boolean, required_input(inputs, 0, "A").shape};
    require_equal_dtypes(inputs);
    for (std::size_t i = 1; i < inputs.size(); ++i)
      y.shape = broadcast_shapes(y.shape, required_input(inputs, i, "B").shape);
    return {y};
  }
  std::size_t elementwise_inputs() const override { return any_number; }

 private:
  const Row& row_;
};

template <typename Element>
class BoundLogic final : public BoundKernel {
 public:
  using T = std::conditional_t<std::is_same_v<Element, bool>, std::uint8_t, Element>;
  explicit BoundLogic(const Binding& binding)
      : kind_(binding.op<LogicOp>().kind()),
        loops_(loops_of(binding, {0, static_cast<int>(binding.problem.inputs().size()) - 1})) {}

  void run(const KernelRun& run) const override {
    const void *a = run.inputs.front().data(), *b = run.inputs.back().data();
    void* y = run.outputs[0].data();
    if (run.cuda == nullptr) {
      with_logic<Element>(kind_, [&](auto f) {
        transform(*run.pool, loops_, f, static_cast<std::uint8_t*>(y), static_cast<const T*>(a),
                  static_cast<const T*>(b));
      });
    } else if constexpr (cuda_built) {
      cuda::logic(*run.cuda, kind_, dtype_of<T>::value, loops_, a, b, y);
    }
  }

 private:
  LogicKind kind_;
  BroadcastLoops loops_;
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
  std::size_t elementwise_inputs() const override { return any_number; }
};

class BoundWhere final : public BoundKernel {
 public:
  explicit BoundWhere(const Binding& binding) : loops_(loops_of(binding, {0, 1, 2})) {}

  void run(const KernelRun& run) const override {
    const void *condition = run.inputs[0].data(), *a = run.inputs[1].data(), *b = run.inputs[2].data();
    void* y = run.outputs[0].data();
    const std::size_t element_bytes = dtype_bytes(run.outputs[0].dtype());
    if (run.cuda == nullptr) {
      dispatch_bytes(element_bytes, [&]<typename T>(std::type_identity<T>) {
        transform(*run.pool, loops_, Select<T>(), static_cast<T*>(y), static_cast<const std::uint8_t*>(condition),
                  static_cast<const T*>(a), static_cast<const T*>(b));
      });
    } else if constexpr (cuda_built) {
      cuda::where(*run.cuda, element_bytes, loops_, condition, a, b, y);
    }
  }

 private:
  BroadcastLoops loops_;
};

template <typename List>
constexpr auto logic_kernels = on_both({.types = dtypes<List>, .formats = nchw_or_nhwc, .tolerance = 2e-6},
                                       bind_typed<BoundLogic, List>, bind_typed<BoundLogic, List>);
constexpr auto where_kernels = on_both({.typed_input = 1, .formats = nchw_or_nhwc}, bind<BoundWhere>, bind<BoundWhere>);

std::shared_ptr<const Op> make(const NodeSpec& spec) {
  AttributeReader(spec).finish();
  return std::make_shared<LogicOp>(
      *std::find_if(std::begin(table), std::end(table), [&](const Row& row) { return row.name == spec.name; }));
}

std::shared_ptr<const Op> make_is_inf(const NodeSpec& spec) {
  AttributeReader reader(spec);
  const bool negative = reader.flag("detect_negative", true), positive = reader.flag("detect_positive", true);
  reader.finish();
  return std::make_shared<LogicOp>(infinities[(negative ? 1 : 0) + (positive ? 2 : 0)]);
}

std::shared_ptr<const Op> make_where(const NodeSpec& spec) {
  AttributeReader(spec).finish();
  return std::make_shared<WhereOp>();
}

}  // namespace

std::span<const OpRow> logic_rows() {
#define LENSLET_ROW(NAME, VERSION, INPUTS, TYPES, ...) \
  {#NAME, "", VERSION, INPUTS, INPUTS, 1, 1, {make, logic_kernels<TYPES>}},
  static constexpr OpRow rows[] = {
      LENSLET_LOGIC_KINDS(LENSLET_ROW){"IsInf", "", 10, 1, 1, 1, 1, {make_is_inf, logic_kernels<RealTypes>}},
      {"Where", "", 9, 3, 3, 1, 1, {make_where, where_kernels}}};
#undef LENSLET_ROW
  return rows;
}

}  // namespace lenslet
