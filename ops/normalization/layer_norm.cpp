// LayerNormalization: rows, of all axes from one on, get mean 0 and variance 1, then each element a factor and an
// offset. RMSNormalization: they get a mean square of 1, then each element a factor.

#include <fmt/format.h>

#include "ops/core/checks.h"
#include "ops/normalization/row_kernels.h"

namespace lenslet {

namespace {

/// Inputs: X of rank 1 and more; Scale and optionally B, of the shape of a row. Outputs: Y and, where they are wanted,
/// Mean and InvStdDev = 1 / sqrt(variance + epsilon). RMSNormalization has neither B nor statistics.
class LayerNormOp final : public Op {
 public:
  bool centered = true;    ///< else RMSNormalization
  std::int64_t axis = -1;  ///< the first of a row
  float epsilon = 1e-5f;
  std::size_t outputs = 1;

  std::string_view type() const override { return centered ? "LayerNormalization" : "RMSNormalization"; }
  AttributeList attributes() const override { return {{"axis", axis}, {"epsilon", static_cast<double>(epsilon)}}; }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& x = required_input(inputs, 0, "X");
    require_equal_dtypes(inputs);
    require_row("Scale", required_input(inputs, 1, "Scale").shape, row(x.shape));
    if (present(inputs, 2)) require_row("B", inputs[2].type.shape, row(x.shape));
    std::vector<TensorType> types(outputs, {DType::f32, statistics(x.shape)});
    types[0] = x;
    return types;
  }
  double flops(std::span<const InputInfo>, std::span<const TensorType> types) const override {
    return 8.0 * static_cast<double>(types[0].shape.elems());
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape& y) const override {
    return axes_kept_if(inputs.size(), y.rank(), [first = first_axis(y)](int i) { return i < first; });
  }

  Shape row(const Shape& x) const { return Shape(x.dims().subspan(static_cast<std::size_t>(first_axis(x)))); }
  /// Of Mean and InvStdDev: an element a row.
  Shape statistics(const Shape& x) const {
    Shape shape = x;
    for (int i = first_axis(x); i < x.rank(); ++i) shape = shape.with(i, 1);
    return shape;
  }

 private:
  int first_axis(const Shape& x) const { return resolve_axis(axis, x.rank()); }
  // ONNX lets Scale and B broadcast to X, too.
  static void require_row(std::string_view name, const Shape& shape, const Shape& row) {
    if (!(shape == row))
      throw Error(ErrorKind::unsupported,
                  fmt::format("input {} has shape {} (supported: {}, that of a row)", name, shape.str(), row.str()));
  }
};

struct Rows {
  float epsilon;
  std::int64_t count, length;

  explicit Rows(const Binding& binding)
      : epsilon(binding.op<LayerNormOp>().epsilon),
        count(binding.op<LayerNormOp>().statistics(binding.shape(0)).elems()),
        length(binding.op<LayerNormOp>().row(binding.shape(0)).elems()) {}

  AffineOfElement affine(const KernelRun& run) const {
    return {run.in<float>(1), run.in<float>(2), run.out<float>(1), run.out<float>(2)};
  }
};
struct RmsRows : Rows {
  using Rows::Rows;
  RmsAffineOfElement affine(const KernelRun& run) const { return {Rows::affine(run)}; }
};

/// An element is rounded seven times on its way (distance, deviation, gain, product, rest, scale, bias), each time by
/// at most 2^-24 of what is seldom more than 5 times the rms: 35 * 2^-24.
template <typename Rows>
constexpr auto kernels = on_both({.types = dtypes<Types<float>>, .tolerance = 2.1e-6, .in_place = input_bit(0)},
                                 bind_rows<Rows>, bind_rows_cuda<Rows>);

std::shared_ptr<const Op> make(const NodeSpec& spec) {
  auto op = std::make_shared<LayerNormOp>();
  AttributeReader reader(spec);
  op->centered = spec.name == "LayerNormalization";
  op->axis = reader.integer("axis", -1);
  op->epsilon = static_cast<float>(reader.real("epsilon", 1e-5));
  op->outputs = spec.outputs;
  require_float_statistics(reader);
  reader.finish();
  return op;
}

}  // namespace

OpParts layer_norm() { return {make, kernels<Rows>}; }
OpParts rms_norm() { return {make, kernels<RmsRows>}; }

}  // namespace lenslet
