// InstanceNormalization: normalises each channel of each image to mean 0 and variance 1, then applies a factor and an
// offset per channel, and an activation. GroupNormalization: the same over groups of adjacent channels.

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
  Epilogue added{.weight_input = Epilogue::no_input, .bias_input = Epilogue::no_input};  ///< an activation alone

  std::string_view type() const override { return "InstanceNormalization"; }
  AttributeList attributes() const override {
    AttributeList list{{"epsilon", static_cast<double>(epsilon)}};
    append_attributes(list, added);
    return list;
  }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& x = required_input(inputs, 0, "input");
    require_rank("input", x.shape, 3, 5);
    require_affine(inputs, "B", x.shape[1]);
    return {x};
  }
  double flops(std::span<const InputInfo>, std::span<const TensorType> outputs) const override {
    return 6.0 * static_cast<double>(outputs[0].shape.elems());
  }
  std::string describe(std::span<const InputInfo>) const override {
    return added.open() ? std::string() : fmt::format("+{}", to_string(added.activation));
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape&) const override {
    return axes_kept(inputs.size(), {0, 1});
  }

  const Epilogue* epilogue() const override { return &added; }
  std::shared_ptr<const Op> with_epilogue(Epilogue changed) const override {
    return with(std::make_shared<InstanceNormOp>(*this), std::move(changed));
  }

 protected:
  static std::shared_ptr<const Op> with(const std::shared_ptr<InstanceNormOp>& copy, Epilogue changed) {
    copy->added = std::move(changed);
    return copy;
  }
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
  std::shared_ptr<const Op> with_epilogue(Epilogue changed) const override {
    return with(std::make_shared<GroupNormOp>(*this), std::move(changed));
  }
};

/// Each plane is a row.
struct Planes {
  float epsilon;
  Activation activation;
  std::int64_t channels, count, length;

  explicit Planes(const Binding& binding)
      : epsilon(binding.op<InstanceNormOp>().epsilon),
        activation(binding.op<InstanceNormOp>().added.activation),
        channels(binding.shape(0)[1]),
        count(binding.shape(0)[0] * channels),
        length(count == 0 ? 0 : binding.shape(0).elems() / count) {}
  AffineOfChannel affine(const KernelRun& run) const { return {run.in<float>(1), run.in<float>(2), channels}; }
};

/// Each group is a row.
struct Groups {
  float epsilon;
  Activation activation;
  std::int64_t groups, count, length, parts;

  explicit Groups(const Binding& binding)
      : epsilon(binding.op<GroupNormOp>().epsilon),
        activation(binding.op<GroupNormOp>().added.activation),
        groups(binding.op<GroupNormOp>().groups),
        count(binding.shape(0)[0] * groups),
        length(count == 0 ? 0 : binding.shape(0).elems() / count),
        parts(binding.shape(1)[0] / groups) {}
  AffineOfGroup affine(const KernelRun& run) const {
    return {run.in<float>(1), run.in<float>(2), groups, parts, length};
  }
};

/// The only group of an image in nhwc, which is a row as in nchw.
struct Image : Groups {
  std::int64_t channels;
  bool clusters;

  explicit Image(const Binding& binding)
      : Groups(binding), channels(binding.shape(0)[1]), clusters(binding.device.clusters) {}
  AffineOfPixel affine(const KernelRun& run) const {
    return {run.in<float>(1), run.in<float>(2), channels, length, clusters};
  }
};

/// In nhwc. Groups of InstanceNormalization are single channels.
PixelGroups pixel_groups(const Binding& binding, std::int64_t groups) {
  const Shape& x = binding.shape(0);
  const auto& op = binding.op<InstanceNormOp>();
  return {.epsilon = op.epsilon,
          .images = x[0],
          .pixels = x[2] * x[3],
          .groups = groups,
          .parts = groups == 0 ? 0 : x[1] / groups,
          .x_pixel = element_strides(x, binding.format(0))[3],
          .y_pixel = element_strides(x, binding.output_format())[3],
          .affine_of_group = binding.shape(1)[0] == groups,
          .activation = op.added.activation};
}
std::unique_ptr<const BoundKernel> bind_pixels(const PixelGroups& of) {
  return bound([of](const KernelRun& run) {
    normalize_pixels(of, run.in<float>(1), run.in<float>(2), run.in<float>(0), run.out<float>(), *run.pool);
  });
}
std::unique_ptr<const BoundKernel> bind_pixels_cuda(const Binding& binding, const PixelGroups& of) {
  const DType dtype = binding.problem.inputs()[0].type.dtype;
  const std::size_t moments = cuda::normalize_pixels_workspace_bytes(of, dtype);
  const auto run_on = [=](const KernelRun& run) {
    if constexpr (cuda_built) {
      auto* buffer = reinterpret_cast<float*>(run.workspace.data() + moments);
      const float* const scale = as_floats(run, 1, buffer);
      const float* const bias = as_floats(run, 2, buffer);
      cuda::normalize_pixels(*run.cuda, of, scale, bias, dtype, run.inputs[0].data(), run.outputs[0].data(),
                             run.workspace.data());
    }
  };
  return bound(run_on, moments + widened_bytes(binding.problem));
}

bool in_nhwc(const Binding& binding) { return binding.format(0).order == Format::Order::channels_last; }
/// Whether an image is one row in memory, in nhwc.
bool is_row(const Binding& binding, const PixelGroups& of) {
  return of.groups == 1 && !of.affine_of_group && of.x_pixel == binding.shape(0)[1] && of.y_pixel == of.x_pixel &&
         of.activation.kind == Activation::Kind::none;
}

std::unique_ptr<const BoundKernel> bind_instance(const Binding& binding) {
  return in_nhwc(binding) ? bind_pixels(pixel_groups(binding, binding.shape(0)[1])) : bind_rows<Planes>(binding);
}
std::unique_ptr<const BoundKernel> bind_instance_cuda(const Binding& binding) {
  if (!in_nhwc(binding)) return bind_rows_cuda<Planes>(binding);
  return bind_pixels_cuda(binding, pixel_groups(binding, binding.shape(0)[1]));
}
std::unique_ptr<const BoundKernel> bind_group(const Binding& binding) {
  if (!in_nhwc(binding)) return bind_rows<Groups>(binding);
  const PixelGroups of = pixel_groups(binding, binding.op<GroupNormOp>().groups);
  return is_row(binding, of) ? bind_rows<Image>(binding) : bind_pixels(of);
}
std::unique_ptr<const BoundKernel> bind_group_cuda(const Binding& binding) {
  if (!in_nhwc(binding)) return bind_rows_cuda<Groups>(binding);
  const PixelGroups of = pixel_groups(binding, binding.op<GroupNormOp>().groups);
  return is_row(binding, of) ? bind_rows_cuda<Image>(binding) : bind_pixels_cuda(binding, of);
}

// As for LayerNormalization, whose scale and bias round separately, too.
constexpr SimpleKernel common{.types = dtypes<Types<float>>,
                              .more_on_cuda = dtypes<HalfTypes>,
                              .formats = nchw_or_nhwc,
                              .tolerance = 2.1e-6,
                              .in_place = input_bit(0),
                              .skips_padding = true};
constexpr auto kernels = on_both(common, bind_instance, bind_instance_cuda);
constexpr auto group_kernels = on_both(common, bind_group, bind_group_cuda);

std::shared_ptr<const Op> make(const NodeSpec& spec) {
  auto op = std::make_shared<InstanceNormOp>();
  AttributeReader reader(spec);
  op->epsilon = static_cast<float>(reader.real("epsilon", 1e-5));
  reader.ignore("consumed_inputs");
  if (spec.normalised) read_epilogue(reader, op->added);
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
  if (spec.normalised) read_epilogue(reader, op->added);
  reader.finish();
  return op;
}

}  // namespace

OpParts instance_norm() { return {make, kernels}; }
OpParts group_norm() { return {make_group, group_kernels}; }

}  // namespace lenslet
