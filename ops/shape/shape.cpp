// Shape and Size of a tensor.

#include <algorithm>

#include "base/cuda_built.h"
#include "ops/core/checks.h"
#include "ops/core/kernel.h"
#include "ops/movement/fill_cuda.h"

namespace lenslet {

namespace {

/// A result that depends only on a shape.
class ShapeFact : public Op {
 public:
  bool reads_only_types() const override { return true; }
  virtual std::vector<std::int64_t> values(const Shape& shape) const = 0;
};

class ShapeOp final : public ShapeFact {
 public:
  explicit ShapeOp(const NodeSpec& spec) {
    AttributeReader reader(spec);
    if (!spec.before(15)) {
      start_ = reader.integer("start", 0);
      if (reader.has("end")) end_ = reader.integer("end", 0);
    }
    reader.finish();
  }

  std::string_view type() const override { return "Shape"; }
  AttributeList attributes() const override {
    AttributeList list{{"start", start_}};
    if (end_) list.emplace_back("end", *end_);
    return list;
  }
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const auto dims = values(required_input(inputs, 0, "data").shape);
    return {{DType::i64, Shape{static_cast<std::int64_t>(dims.size())}}};
  }
  std::vector<std::int64_t> values(const Shape& shape) const override {
    const auto clamp = [rank = std::int64_t{shape.rank()}](std::int64_t axis) {
      return std::clamp<std::int64_t>(axis < 0 ? axis + rank : axis, 0, rank);
    };
    const std::int64_t start = clamp(start_), end = std::max(start, end_ ? clamp(*end_) : shape.rank());
    return {shape.dims().begin() + start, shape.dims().begin() + end};
  }

 private:
  std::int64_t start_ = 0;
  std::optional<std::int64_t> end_;
};

class Size final : public ShapeFact {
 public:
  std::string_view type() const override { return "Size"; }
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    required_input(inputs, 0, "data");
    return {{DType::i64, Shape{}}};
  }
  std::vector<std::int64_t> values(const Shape& shape) const override { return {shape.elems()}; }
};

class BoundFact final : public BoundKernel {
 public:
  explicit BoundFact(const Binding& binding) : values_(binding.op<ShapeFact>().values(binding.shape(0))) {}
  void run(const KernelRun& run) const override {
    auto* to = run.out<std::int64_t>();
    if constexpr (cuda_built)
      if (run.cuda != nullptr) return cuda::store(*run.cuda, values_, to);
    std::ranges::copy(values_, to);
  }

 private:
  std::vector<std::int64_t> values_;
};

constexpr auto kernels = on_both({.formats = nchw_or_nhwc, .reads = no_inputs}, bind<BoundFact>, bind<BoundFact>);

}  // namespace

OpParts shape() { return {make_from<ShapeOp>, kernels}; }
OpParts size() { return {make_plain<Size>, kernels}; }

}  // namespace lenslet
