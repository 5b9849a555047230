// Constant and ConstantOfShape.

#include "ops/shape/constant.h"

#include <fmt/format.h>

#include <cstring>

#include "ops/core/copy.h"
#include "ops/core/makers.h"
#include "ops/core/shape_args.h"
#include "ops/core/strided_copy.h"
#include "ops/core/type_check.h"
#include "ops/movement/fill_cuda.h"

namespace lenslet {

namespace {

class Constant final : public Op {
 public:
  explicit Constant(Tensor value) : value_(std::move(value)) {}

  std::string_view type() const override { return "Constant"; }
  AttributeList attributes() const override { return {{"value", value_}}; }
  std::vector<TensorType> infer(std::span<const InputInfo>) const override {
    return {{value_.dtype(), value_.shape()}};
  }
  double tolerance(std::span<const InputInfo>) const override { return 0; }
  void run_cpu(const RunContext& context) const override { copy_bytes(value_, context.outputs[0], context.pool); }
  std::optional<std::string> refuse_cuda(std::span<const InputInfo>) const override {
    return "its value should have become a constant of the graph when the model was loaded";
  }

 private:
  Tensor value_;
};

class ConstantOfShape final : public Op {
 public:
  explicit ConstantOfShape(Tensor value) : value_(std::move(value)) {}

  std::string_view type() const override { return "ConstantOfShape"; }
  AttributeList attributes() const override { return {{"value", value_}}; }
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const AxisInts dims = required_axis_ints(inputs, 0, "input");
    for (const std::int64_t dim : dims.span())
      if (dim < 0) throw Error(ErrorKind::invalid_model, fmt::format("input has the dimension {}", dim));
    const Shape shape(dims.span());
    shape.elems();  // refuses what no tensor can hold
    return {{value_.dtype(), shape}};
  }
  double tolerance(std::span<const InputInfo>) const override { return 0; }
  void run_cpu(const RunContext& context) const override {
    Tensor& to = context.outputs[0];
    StridedLoops loops;
    loops.add(to.elems(), 0, 1);
    strided_copy(dtype_bytes(to.dtype()), loops, value_.data(), to.data(), context.pool);
  }

  std::optional<std::string> refuse_cuda(std::span<const InputInfo>) const override { return std::nullopt; }
  bool reads_on_cuda(int, const PlanContext&) const override { return false; }
  void run_cuda(const CudaRun& run) const override {
    if constexpr (cuda_built) {
      Tensor& to = run.outputs[0];
      std::uint64_t bits = 0;
      std::memcpy(&bits, value_.data(), value_.bytes());
      cuda::fill(run.context, dtype_bytes(to.dtype()), to.elems(), bits, to.data());
    }
  }

 private:
  Tensor value_;  ///< one element
};

template <typename T, typename From>
Tensor list_tensor(const std::vector<From>& list) {
  std::vector<T> values;
  for (const From value : list) values.push_back(static_cast<T>(value));
  return Tensor::of<T>(Shape{static_cast<std::int64_t>(values.size())}, std::span<const T>(values));
}

}  // namespace

Tensor constant_value(const AttributeList& attributes) {
  for (const auto& [name, value] : attributes)
    if (name == "sparse_value" || name == "value_string" || name == "value_strings")
      throw Error(ErrorKind::unsupported,
                  fmt::format("attribute '{}': strings and sparse tensors are not supported", name));
  if (attributes.size() != 1)
    throw Error(ErrorKind::invalid_model,
                fmt::format("{} attributes; exactly one must hold the value", attributes.size()));
  AttributeReader reader(attributes);
  Tensor value;
  if (reader.has("value"))
    value = *reader.tensor("value");
  else if (reader.has("value_float"))
    value = Tensor::of<float>(Shape{}, {static_cast<float>(reader.real("value_float", 0))});
  else if (reader.has("value_floats"))
    value = list_tensor<float>(reader.reals("value_floats"));
  else if (reader.has("value_int"))
    value = Tensor::of<std::int64_t>(Shape{}, {reader.integer("value_int", 0)});
  else if (reader.has("value_ints"))
    value = list_tensor<std::int64_t>(reader.integers("value_ints"));
  else
    throw Error(ErrorKind::invalid_model,
                fmt::format("attribute '{}' is not one of a Constant's", attributes.front().first));
  return value;
}

std::shared_ptr<const Op> make_constant(const NodeSpec& spec) {
  return std::make_shared<Constant>(constant_value(spec.attributes));
}

std::shared_ptr<const Op> make_constant_of_shape(const NodeSpec& spec) {
  AttributeReader reader(spec.attributes);
  Tensor value = reader.has("value") ? *reader.tensor("value") : Tensor::of<float>(Shape{1}, {0.0F});
  reader.finish();
  if (value.elems() != 1)
    throw Error(ErrorKind::invalid_model,
                fmt::format("attribute 'value' must hold one element, not {}", value.shape().str()));
  return std::make_shared<ConstantOfShape>(std::move(value));
}

}  // namespace lenslet
