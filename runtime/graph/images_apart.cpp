#include "runtime/graph/images_apart.h"

#include <fmt/format.h>

namespace lenslet {
namespace {

/// Elements of `x` in their order in `y`: what is outermost in axis `axis` of x is so in this axis of y, or in none.
int same_place(const Shape& x, int axis, const Shape& y) {
  const auto before = [](const Shape& shape, int end) {
    std::int64_t elems = 1;
    for (int i = 0; i < end; ++i) elems *= shape[i];
    return elems;
  };
  const auto fits = [&](int i) { return i < y.rank() && before(y, i) == before(x, axis); };
  if (fits(axis)) return axis;
  for (int i = 0; i < y.rank(); ++i)
    if (fits(i)) return i;
  return AxisMap::none;
}

}  // namespace

ImagesApart keep_images_apart(const Op& op, std::span<const BatchInput> inputs, const TensorType& output) {
  std::vector<InputInfo> infos;
  for (const BatchInput& input : inputs) infos.push_back(input.info);
  if (output.shape.rank() == 0) return {"its result has no dimension for the images"};
  const std::optional<AxisMap> map = op.axis_map(infos, output.shape);
  if (!map) return {fmt::format("{} is not known to keep images apart", op.type())};

  int axis = no_images;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const int images = inputs[i].images;
    if (images == no_images) continue;
    const AxisMap::Followed& followed = map->inputs[i];
    const bool in_order = map->keeps_order && i == 0;
    if (followed.parameter && !in_order) return {fmt::format("its parameter input {} depends on the images", i)};
    const int follower = in_order ? same_place(infos[i].type.shape, images, output.shape) : followed.follower(images);
    if (follower == AxisMap::none && in_order)
      return {fmt::format("it merges dimension {}, which holds the images, with others", images)};
    if (follower == AxisMap::none) return {fmt::format("it works along dimension {}, which holds the images", images)};
    if (axis != no_images && follower != axis) return {"its operands hold the images in different dimensions"};
    axis = follower;
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const AxisMap::Followed& followed = map->inputs[i];
    const std::int8_t own = followed.axis[static_cast<std::size_t>(axis)];
    if (inputs[i].images != no_images || !infos[i].present || followed.parameter || own == AxisMap::none) continue;
    // What is fixed can serve every image only where it is stretched, or repeated as a constant of one.
    const Shape& shape = infos[i].type.shape;
    const bool repeats = map->broadcasts || infos[i].constant != nullptr;
    if (shape[own] != 1 || !repeats) return {fmt::format("operand {} is fixed in dimension {}", shape.str(), int{own})};
  }
  return {"", axis};
}

}  // namespace lenslet
