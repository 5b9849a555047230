// InstanceNormalization: normalises each channel of each image to mean 0 and variance 1, then applies a factor and an
// offset per channel. GroupNormalization: the same over groups of adjacent channels.

#include <fmt/format.h>

#include "ops/core/checks.h"
#include "ops/normalization/parameters.h"
#include "ops/normalization/row_kernels.h"

namespace lenslet {

namespace {

/// Inputs: x [N,C,...] of rank 3 to 5, scale and bias [C].
class InstanceNormOp : public Op {
 public:
  float epsilon = 1e-5f;

  std::string_view type() const override { return "InstanceNormalization"; }
  AttributeList attributes() const override { return {{"epsilon", static_cast<double>(epsilon)}}; }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& x = required_input(inputs, 0, "input");
    require_rank("input", x.shape, 3, 5);
    require_affine(inputs, "B", x.shape[1]);
    return {x};
  }
  double flops(std::span<const InputInfo>, std::span<const TensorType> outputs) const override {
    return 6.0 * static_cast<double>(outputs[0].shape.elems());
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape&) const override {
    return axes_kept(inputs.size(), {0, 1});
  }

 protected:
  static void require_affine(std::span<const InputInfo> inputs, std::string_view bias, std::int64_t length) {
    require_parameter_dtypes(inputs);
    const std::string_view names[] = {"scale", bias};
    for (std::size_t i = 0; i < 2; ++i)
      require_shape(fmt::format("input {}", names[i]), required_input(inputs, i + 1, names[i]).shape, Shape{length});
  }
};

/// Inputs: X [N,C,...] of rank 2 and more, scale and bias [C], or [groups] up to opset 20.
class GroupNormOp final : public InstanceNormOp {
 public:
  std::int64_t groups = 1;
  bool affine_of_group = false;

  std::string_view type() const override { return "GroupNormalization"; }
  AttributeList attributes() const override {
    AttributeList list = InstanceNormOp::attributes();
    list.emplace_back("num_groups", groups);
    list.emplace_back("affine_of_group", std::int64_t{affine_of_group});
    return list;
  }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& x = required_input(inputs, 0, "X");
    require_rank("input X", x.shape, 2, Shape::max_rank);
    if (groups < 1 || x.shape[1] % groups != 0)
      throw Error(ErrorKind::invalid_model,
                  fmt::format("{} channels cannot be cut into {} groups", x.shape[1], groups));
    require_affine(inputs, "bias", affine_of_group ? groups : x.shape[1]);
    return {x};
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape&) const override {
    return axes_kept(inputs.size(), {0});
  }
};

/// Each plane is a row.
struct Planes {
  float epsilon;
  std::int64_t channels, count, length;

  explicit Planes(const Binding& binding)
      : epsilon(binding.op<InstanceNormOp>().epsilon),
        channels(binding.shape(0)[1]),
        count(binding.shape(0)[0] * channels),
        length(count == 0 ? 0 : binding.shape(0).elems() / count) {}
  AffineOfChannel affine(const KernelRun& run) const { return {run.in<float>(1), run.in<float>(2), channels}; }
};

/// Each group is a row.
struct Groups {
  float epsilon;
  std::int64_t groups, count, length, parts;

  explicit Groups(const Binding& binding)
      : epsilon(binding.op<GroupNormOp>().epsilon),
        groups(binding.op<GroupNormOp>().groups),
        count(binding.shape(0)[0] * groups),
        length(count == 0 ? 0 : binding.shape(0).elems() / count),
        parts(binding.shape(1)[0] / groups) {}
  AffineOfGroup affine(const KernelRun& run) const {
    return {run.in<float>(1), run.in<float>(2), groups, parts, length};
  }
};

/// The only group of an image in nhwc, which is a row as in nchw; several groups are no rows there.
struct Image : Groups {
  std::int64_t channels;
  bool clusters;

  explicit Image(const Binding& binding)
      : Groups(binding), channels(binding.shape(0)[1]), clusters(binding.device.clusters) {}
  /// Whether scale and bias of each channel are wanted in nhwc; one of the group is the same in both.
  static bool lies_in(const Binding& binding) {
    return binding.format(0).order == Format::Order::channels_last && binding.shape(1)[0] > 1;
  }
  AffineOfPixel affine(const KernelRun& run) const {
    return {run.in<float>(1), run.in<float>(2), channels, length, clusters};
  }
};

std::span<const Format> group_formats(const Problem& problem) {
  return problem.as<GroupNormOp>().groups == 1 ? std::span<const Format>(nchw_or_nhwc) : nchw_only;
}
std::unique_ptr<const BoundKernel> bind_group(const Binding& binding) {
  return Image::lies_in(binding) ? bind_rows<Image>(binding) : bind_rows<Groups>(binding);
}
std::unique_ptr<const BoundKernel> bind_group_cuda(const Binding& binding) {
  return Image::lies_in(binding) ? bind_rows_cuda<Image>(binding) : bind_rows_cuda<Groups>(binding);
}

constexpr SimpleKernel common{
    .types = dtypes<Types<float>>, .more_on_cuda = dtypes<HalfTypes>, .tolerance = 2e-6, .in_place = input_bit(0)};
constexpr auto kernels = on_both(common, bind_rows<Planes>, bind_rows_cuda<Planes>);
constexpr auto group_kernels = [] {
  SimpleKernel row = common;
  row.tolerance = 2.1e-6;  // as for LayerNormalization, whose scale and bias round separately, too
  row.formats_for = group_formats;
  return on_both(row, bind_group, bind_group_cuda);
}();

std::shared_ptr<const Op> make(const NodeSpec& spec) {
  auto op = std::make_shared<InstanceNormOp>();
  AttributeReader reader(spec);
  op->epsilon = static_cast<float>(reader.real("epsilon", 1e-5));
  reader.ignore("consumed_inputs");
  reader.finish();
  return op;
}

std::shared_ptr<const Op> make_group(const NodeSpec& spec) {
  auto op = std::make_shared<GroupNormOp>();
  AttributeReader reader(spec);
  op->epsilon = static_cast<float>(reader.real("epsilon", 1e-5));
  op->groups = reader.required_integer("num_groups");
  op->affine_of_group = spec.normalised ? reader.flag("affine_of_group", false) : spec.before(21);
  require_float_statistics(reader);
  reader.finish();
  return op;
}

}  // namespace

OpParts instance_norm() { return {make, kernels}; }
OpParts group_norm() { return {make_group, group_kernels}; }

}  // namespace lenslet
