#include "runtime/graph/images_apart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <vector>


namespace lenslet {
namespace {

using Inputs = std::span<const BatchInput>;
using Integers = std::vector<std::int64_t>;

// clang-format off
// Each output element from the input elements at its own place, shapes broadcast.
constexpr std::string_view elementwise[] = {
    "Abs", "Add", "And", "Cast", "Ceil", "Clip", "Div", "Dropout", "Elu", "Equal", "Erf", "Exp", "Expand", "Floor",
    "Greater", "GreaterOrEqual", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Less", "LessOrEqual", "Log",
    "Max", "Mean", "Min", "Mish", "Mul", "Neg", "Not", "Or", "PRelu", "Pow", "Reciprocal", "Relu", "Selu", "SiLU",
    "Sigmoid", "Softplus", "Sqrt", "Sub", "Sum", "Tanh", "Where", "Xor",
};
// Image by image; input 0 is the images, the others are parameters.
constexpr std::string_view by_image[] = {
    "AveragePool", "BatchNormalization", "Conv", "DepthToSpace", "GlobalAveragePool", "GlobalMaxPool",
    "InstanceNormalization", "LRN", "MaxPool", "Pad", "SpaceToDepth", "Tile",
};
constexpr std::string_view along_axis[] = {
    "ArgMax", "ArgMin", "Concat", "Flatten", "LogSoftmax", "Softmax", "Split",
};
// clang-format on

template <std::size_t n>
bool stands_in(const std::string_view (&list)[n], std::string_view type) {
  return std::find(std::begin(list), std::end(list), type) != std::end(list);
}

std::string parameter_batched(Inputs inputs) {
  for (std::size_t i = 1; i < inputs.size(); ++i)
    if (inputs[i].batched) return fmt::format("its parameter input {} depends on the images", i);
  return inputs[0].batched ? "" : "its first input does not hold the images";
}

std::string check_elementwise(Inputs inputs, const TensorType& output) {
  std::optional<std::int64_t> rows;  // of dimension 0, for one image
  for (const BatchInput& input : inputs) {
    if (!input.info.present) continue;
    const Shape& shape = input.info.type.shape;
    if (input.batched && shape.rank() != output.shape.rank())
      return fmt::format("broadcasting {} to {} moves the images out of dimension 0", shape.str(), output.shape.str());
    if (input.batched && rows.value_or(shape[0]) != shape[0]) return "its inputs hold the images in different ways";
    if (input.batched) rows = shape[0];
    if (!input.batched && shape.rank() == output.shape.rank() && shape.rank() > 0 && shape[0] != 1)
      return fmt::format("operand {} is fixed in dimension 0", shape.str());
  }
  return rows == output.shape[0] ? "" : "it repeats images";
}

/// Axes from an attribute or from constant input `index`; nothing when neither is there.
std::optional<Integers> axes_of(const Op& op, Inputs inputs, std::string_view attribute, std::size_t index) {
  if (auto list = integers_attribute(op, attribute); list && !list->empty()) return list;
  if (index >= inputs.size() || inputs[index].info.constant == nullptr) return std::nullopt;
  const Tensor& constant = *inputs[index].info.constant;
  Integers list;
  if (constant.dtype() == DType::i64)
    for (const std::int64_t axis : constant.values<std::int64_t>()) list.push_back(axis);
  else if (constant.dtype() == DType::i32)
    for (const std::int32_t axis : constant.values<std::int32_t>()) list.push_back(axis);
  if (list.empty()) return std::nullopt;
  return list;
}

bool names_first(const Integers& axes, int rank) {
  return std::any_of(axes.begin(), axes.end(), [&](std::int64_t axis) { return axis == 0 || axis == -rank; });
}

std::string check_axes(const Op& op, Inputs inputs, int rank, bool all_by_default) {
  const auto axes = axes_of(op, inputs, "axes", 1);
  if (axes && names_first(*axes, rank)) return "it works along dimension 0, which holds the images";
  if (!axes && all_by_default) return "it works along all dimensions, the images' too";
  return {};
}

std::string check_along_axis(const Op& op, Inputs inputs) {
  const auto batched = std::find_if(inputs.begin(), inputs.end(), [](const BatchInput& i) { return i.batched; });
  const int rank = batched->info.type.shape.rank();
  const std::optional<std::int64_t> axis = integer_attribute(op, "axis");
  if (!axis) return "its axis is not known";
  if (*axis == 0 || *axis == -rank) return "it works along dimension 0, which holds the images";
  if (op.type() == "Concat")  // a constant for one image can be repeated for each
    for (const BatchInput& input : inputs)
      if (!input.batched && (input.info.constant == nullptr || input.info.type.shape[0] != 1))
        return fmt::format("operand {} is fixed in dimension 0", input.info.type.shape.str());
  return {};
}

std::string check_matmul(Inputs inputs) {
  const BatchInput &a = inputs[0], &b = inputs[1];
  const Shape &as = a.info.type.shape, &bs = b.info.type.shape;
  if (a.batched && b.batched) {
    if (as.rank() == bs.rank() && as.rank() >= 3 && as[0] == bs[0]) return {};
    return "it multiplies images with each other";
  }
  const Shape &images = a.batched ? as : bs, &fixed = a.batched ? bs : as;
  if (images.rank() < (a.batched ? 2 : 3)) return "it sums over the images";
  if (fixed.rank() > images.rank()) return "broadcasting moves the images out of dimension 0";
  const bool stacked = fixed.rank() == images.rank() && images.rank() >= 3;
  return stacked && fixed[0] != 1 ? "its fixed operand differs along dimension 0" : "";
}

std::string check_gemm(const Op& op, Inputs inputs) {
  if (inputs[1].batched) return "its second factor depends on the images";
  if (!inputs[0].batched) return "its first factor does not hold the images";
  if (integer_attribute(op, "transA").value_or(0) != 0) return "transA moves the images out of dimension 0";
  if (inputs.size() > 2 && inputs[2].info.present && !inputs[2].batched) {
    const Shape& c = inputs[2].info.type.shape;
    if (c.rank() == 2 && c[0] != 1) return "its summand is fixed in dimension 0";
  }
  return {};
}

std::string check_gather(const Op& op, Inputs inputs) {
  const std::int64_t axis = integer_attribute(op, "axis").value_or(0);
  const bool first = axis == 0 || axis == -inputs[0].info.type.shape.rank();
  if (inputs[0].batched && inputs[1].batched) return "it picks from images by images";
  if (inputs[0].batched) return first ? "it picks among the images" : "";
  return first ? "" : "its indices' images land behind dimension 0";
}

std::string check_slice(const Op& op, Inputs inputs) {
  const auto axes = axes_of(op, inputs, "axes", 3);
  const auto starts = axes_of(op, inputs, "starts", 1);
  // Without axes the first ones are cut, dimension 0 among them.
  const bool first = axes ? names_first(*axes, inputs[0].info.type.shape.rank()) : true;
  if (!first) return {};
  if (!starts) return "it cuts dimension 0, which holds the images, where the network computes";
  const auto steps = axes_of(op, inputs, "steps", 4);
  for (std::size_t i = 0; i < (axes ? axes->size() : 1); ++i) {
    if (axes && (*axes)[i] != 0 && (*axes)[i] != -inputs[0].info.type.shape.rank()) continue;
    if (i >= starts->size() || (*starts)[i] != 0 || (steps && i < steps->size() && (*steps)[i] != 1))
      return "it picks among the images";
  }
  return {};
}

}  // namespace

std::string mixes_images(const Op& op, Inputs inputs, const TensorType& output) {
  const std::string_view type = op.type();
  if (output.shape.rank() == 0) return "its result has no dimension for the images";
  if (stands_in(elementwise, type)) return check_elementwise(inputs, output);
  if (stands_in(along_axis, type)) return check_along_axis(op, inputs);
  if (type == "MatMul") return check_matmul(inputs);
  if (type == "Gemm") return check_gemm(op, inputs);
  if (type == "Gather") return check_gather(op, inputs);
  if (const std::string why = parameter_batched(inputs); !why.empty()) return why;
  const Shape& x = inputs[0].info.type.shape;
  if (stands_in(by_image, type)) return x[0] == output.shape[0] ? "" : "it changes the number of images";
  if (type == "Reshape") return {};  // the images are outermost before, and can stay so
  if (type == "Slice") return check_slice(op, inputs);
  if (type == "Transpose") {
    const auto perm = integers_attribute(op, "perm");
    return perm && !perm->empty() && perm->front() == 0 ? "" : "it moves the images out of dimension 0";
  }
  if (type == "Unsqueeze") return check_axes(op, inputs, output.shape.rank(), false);
  if (type == "Squeeze") return check_axes(op, inputs, x.rank(), false);
  if (type.starts_with("Reduce")) return check_axes(op, inputs, x.rank(), true);
  return fmt::format("{} is not known to keep images apart", type);
}

}  // namespace lenslet
