// Unique: the distinct elements of a tensor, or slices of an axis, sorted or in order of appearance.

#include <algorithm>
#include <numeric>
#include <optional>

#include "base/convert.h"
#include "ops/core/checks.h"
#include "ops/core/whole_op.h"

namespace lenslet {

namespace {

/// Slices of an axis: element j of slice i, in the order of the shape without the axis.
template <typename T>
struct Slices {
  const T* data;
  std::int64_t count, outer, inner;

  std::int64_t elems() const { return outer * inner; }
  std::int64_t at(std::int64_t i, std::int64_t j) const { return (j / inner * count + i) * inner + j % inner; }
  /// -1, 0 or 1. NaN equals NaN and comes after all numbers, as in NumPy.
  int compare(std::int64_t a, std::int64_t b) const {
    for (std::int64_t j = 0; j < elems(); ++j) {
      const auto x = Convert<Number, T>()(data[at(a, j)]), y = Convert<Number, T>()(data[at(b, j)]);
      if (x < y || (x == x && y != y)) return -1;
      if (y < x || (y == y && x != x)) return 1;
    }
    return 0;
  }

 private:
  using Number = Wide<T>;
};

class Unique final : public WholeOp {
 public:
  explicit Unique(const NodeSpec& spec) : outputs_(spec.outputs) {
    AttributeReader reader(spec);
    sorted_ = reader.flag("sorted", true);
    if (reader.has("axis")) axis_ = reader.required_integer("axis");
    reader.finish();
  }

  std::string_view type() const override { return "Unique"; }
  AttributeList attributes() const override {
    AttributeList list{{"sorted", std::int64_t{sorted_}}};
    if (axis_) list.emplace_back("axis", *axis_);
    return list;
  }
  void check(std::span<const InputInfo> inputs) const override {
    const Shape& x = required_input(inputs, 0, "X").shape;
    if (axis_) (void)resolve_axis(*axis_, x.rank());
  }

  std::vector<Shape> bounds(std::span<const InputInfo> inputs) const override {
    const Shape& x = inputs[0].type.shape;
    const Shape y = axis_ ? x : Shape{x.elems()}, count{axis_ ? x[resolve_axis(*axis_, x.rank())] : x.elems()};
    std::vector<Shape> shapes{y, count, count, count};
    shapes.resize(outputs_);
    return shapes;
  }

  std::vector<Tensor> compute(std::span<const Tensor> inputs) const override {
    const Tensor& x = inputs[0];
    return dispatch(x.dtype(), AllTypes(), [&]<typename T>(std::type_identity<T>) {
      const Shape shape = axis_ ? x.shape() : Shape{x.elems()};
      const int axis = axis_ ? resolve_axis(*axis_, shape.rank()) : 0;
      Slices<T> slices{static_cast<const T*>(x.data()), shape[axis], 1, 1};
      for (int d = 0; d < shape.rank(); ++d)
        if (d != axis) (d < axis ? slices.outer : slices.inner) *= shape[d];
      return compute(slices, shape, axis, x.dtype());
    });
  }

 private:
  template <typename T>
  std::vector<Tensor> compute(const Slices<T>& x, const Shape& shape, int axis, DType dtype) const {
    std::vector<std::int64_t> order(static_cast<std::size_t>(x.count));
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, [&](auto a, auto b) { return x.compare(a, b) < 0; });
    // Runs of equal slices; each starts with the one that is first in x.
    struct Run {
      std::size_t begin, end;
    };
    std::vector<Run> runs;
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (i == 0 || x.compare(order[i - 1], order[i]) != 0) runs.push_back({i, i});
      runs.back().end = i + 1;
    }
    if (!sorted_) std::ranges::sort(runs, {}, [&](const Run& run) { return order[run.begin]; });

    const auto count = static_cast<std::int64_t>(runs.size());
    Tensor y(dtype, shape.with(axis, count)), firsts(DType::i64, {count}), inverse(DType::i64, {x.count}),
        counts(DType::i64, {count});
    const Slices<T> to{static_cast<const T*>(y.data()), count, x.outer, x.inner};
    for (std::int64_t i = 0; i < count; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const Run& run = runs[at];
      for (std::int64_t j = 0; j < x.elems(); ++j)
        static_cast<T*>(y.data())[to.at(i, j)] = x.data[x.at(order[run.begin], j)];
      firsts.values<std::int64_t>()[at] = order[run.begin];
      counts.values<std::int64_t>()[at] = static_cast<std::int64_t>(run.end - run.begin);
      for (std::size_t k = run.begin; k < run.end; ++k)
        inverse.values<std::int64_t>()[static_cast<std::size_t>(order[k])] = i;
    }
    std::vector<Tensor> outputs{y, firsts, inverse, counts};
    outputs.resize(outputs_);
    return outputs;
  }

  std::size_t outputs_;
  bool sorted_ = true;
  std::optional<std::int64_t> axis_;
};

constexpr SimpleKernel kernels[] = {{.types = dtypes<AllTypes>, .bind = bind_whole}};

}  // namespace

OpParts unique() { return {make_from<Unique>, kernels}; }

}  // namespace lenslet
