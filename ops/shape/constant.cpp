// Constant and ConstantOfShape.

#include <fmt/format.h>

#include <cstring>

#include "ops/core/checks.h"
#include "ops/core/constant_value.h"
#include "ops/core/shape_args.h"
#include "ops/movement/moves.h"

namespace lenslet {

namespace {

class Constant final : public Op {
 public:
  explicit Constant(Tensor v) : value(std::move(v)) {}

  const Tensor value;

  std::string_view type() const override { return "Constant"; }
  AttributeList attributes() const override { return {{"value", value}}; }
  std::vector<TensorType> infer(std::span<const InputInfo>) const override { return {{value.dtype(), value.shape()}}; }
};

class ConstantOfShape final : public Op {
 public:
  explicit ConstantOfShape(Tensor v) : value(std::move(v)) {}

  const Tensor value;  ///< one element

  std::string_view type() const override { return "ConstantOfShape"; }
  AttributeList attributes() const override { return {{"value", value}}; }
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const AxisInts dims = required_axis_ints(inputs, 0, "input");
    for (const std::int64_t dim : dims.span())
      if (dim < 0) throw Error(ErrorKind::invalid_model, fmt::format("input has the dimension {}", dim));
    const Shape shape(dims.span());
    shape.elems();  // refuses what no tensor can hold
    return {{value.dtype(), shape}};
  }
};

void run_constant(const Constant& op, const KernelRun& run) { copy_bytes(run, op.value, run.outputs[0]); }

std::optional<std::string> refuse_on_cuda(const Problem&) {
  return "its value should have become a constant of the graph when the model was loaded";
}

void run_constant_of_shape(const ConstantOfShape& op, const KernelRun& run) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, op.value.data(), op.value.bytes());
  fill(run, bits, run.outputs[0]);
}

constexpr SimpleKernel constant_kernels[] = {
    {.bind = bind_run<run_constant>},
    {.device = DeviceKind::cuda, .refuse = refuse_on_cuda, .bind = bind_run<run_constant>},
};
constexpr auto constant_of_shape_kernels = on_either({.reads = no_inputs, .bind = bind_run<run_constant_of_shape>});

std::shared_ptr<const Op> make_constant(const NodeSpec& spec) {
  return std::make_shared<Constant>(constant_value(spec.attributes));
}

std::shared_ptr<const Op> make_constant_of_shape(const NodeSpec& spec) {
  AttributeReader reader(spec);
  Tensor value = reader.has("value") ? *reader.tensor("value") : Tensor::of<float>(Shape{1}, {0.0F});
  reader.finish();
  if (value.elems() != 1)
    throw Error(ErrorKind::invalid_model,
                fmt::format("attribute 'value' must hold one element, not {}", value.shape().str()));
  return std::make_shared<ConstantOfShape>(std::move(value));
}

}  // namespace

OpParts constant() { return {make_constant, constant_kernels}; }
OpParts constant_of_shape() { return {make_constant_of_shape, constant_of_shape_kernels}; }

}  // namespace lenslet
