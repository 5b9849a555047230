// Shape and Size: what is known of a tensor, as a tensor.

#include <algorithm>

#include "ops/core/makers.h"
#include "ops/core/type_check.h"
#include "ops/movement/fill_cuda.h"

namespace lenslet {

namespace {

class ShapeOp final : public Op {
 public:
  ShapeOp(std::int64_t start, std::optional<std::int64_t> end) : start_(start), end_(end) {}

  std::string_view type() const override { return "Shape"; }
  AttributeList attributes() const override {
    AttributeList list{{"start", start_}};
    if (end_) list.emplace_back("end", *end_);
    return list;
  }
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const Shape& shape = required_input(inputs, 0, "data").shape;
    return {{DType::i64, Shape{end(shape) - start(shape)}}};
  }
  bool runs_in(Format, std::span<const InputInfo>) const override { return true; }
  double tolerance(std::span<const InputInfo>) const override { return 0; }
  void run_cpu(const RunContext& context) const override {
    const Shape& shape = context.inputs[0].shape();
    auto* to = static_cast<std::int64_t*>(context.outputs[0].data());
    for (std::int64_t i = start(shape); i < end(shape); ++i) *to++ = shape[static_cast<int>(i)];
  }

  std::optional<std::string> refuse_cuda(std::span<const InputInfo>) const override { return std::nullopt; }
  bool reads_on_cuda(int, const PlanContext&) const override { return false; }
  void run_cuda(const CudaRun& run) const override {
    const Shape& shape = run.inputs[0].shape();
    const auto first = static_cast<std::size_t>(start(shape)), last = static_cast<std::size_t>(end(shape));
    if constexpr (cuda_built)
      cuda::store(run.context, shape.dims().subspan(first, last - first),
                  static_cast<std::int64_t*>(run.outputs[0].data()));
  }

 private:
  static std::int64_t clamp(std::int64_t axis, std::int64_t rank) {
    return std::clamp<std::int64_t>(axis < 0 ? axis + rank : axis, 0, rank);
  }
  std::int64_t start(const Shape& shape) const { return clamp(start_, shape.rank()); }
  std::int64_t end(const Shape& shape) const {
    return std::max(start(shape), end_ ? clamp(*end_, shape.rank()) : shape.rank());
  }

  std::int64_t start_;
  std::optional<std::int64_t> end_;
};

class Size final : public Op {
 public:
  std::string_view type() const override { return "Size"; }
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    required_input(inputs, 0, "data");
    return {{DType::i64, Shape{}}};
  }
  bool runs_in(Format, std::span<const InputInfo>) const override { return true; }
  double tolerance(std::span<const InputInfo>) const override { return 0; }
  void run_cpu(const RunContext& context) const override {
    *static_cast<std::int64_t*>(context.outputs[0].data()) = context.inputs[0].shape().elems();
  }

  std::optional<std::string> refuse_cuda(std::span<const InputInfo>) const override { return std::nullopt; }
  bool reads_on_cuda(int, const PlanContext&) const override { return false; }
  void run_cuda(const CudaRun& run) const override {
    const std::int64_t elems = run.inputs[0].shape().elems();
    if constexpr (cuda_built) cuda::store(run.context, {&elems, 1}, static_cast<std::int64_t*>(run.outputs[0].data()));
  }
};

}  // namespace

std::shared_ptr<const Op> make_shape(const NodeSpec& spec) {
  AttributeReader reader(spec.attributes);
  std::int64_t start = 0;
  std::optional<std::int64_t> end;
  if (spec.opset >= 15) {
    start = reader.integer("start", 0);
    if (reader.has("end")) end = reader.integer("end", 0);
  }
  reader.finish();
  return std::make_shared<ShapeOp>(start, end);
}

std::shared_ptr<const Op> make_size(const NodeSpec& spec) {
  AttributeReader(spec.attributes).finish();
  return std::make_shared<Size>();
}

}  // namespace lenslet
