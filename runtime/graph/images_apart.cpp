#include "runtime/graph/images_apart.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace lenslet {
namespace {

std::int64_t before(const Shape& shape, int end) {
  std::int64_t elems = 1;
  for (int i = 0; i < end; ++i) elems *= shape[i];
  return elems;
}

/// Possible positions of x's images in y, a reshaped x.
std::vector<ImagesAt> same_places(const Shape& x, const ImagesAt& images, const Shape& y) {
  const std::int64_t wanted = before(x, images.axis) * images.outer;
  std::vector<ImagesAt> own, same, ends, others;
  for (int i = 0; i < y.rank() && wanted > 0; ++i) {
    const std::int64_t elems = before(y, i);
    if (elems == 0 || wanted % elems != 0) continue;
    const ImagesAt here{i, wanted / elems};
    if (here.outer > y[i] || y[i] % here.outer != 0) continue;
    const bool first = here.outer == 1 && (y[i] == 1 || wanted == 1);
    (first ? own : here == images && y[i] == x[i] ? same : here.outer == y[i] ? ends : others).push_back(here);
  }
  // A separate dimension, or the previous one, is unambiguous.
  for (const std::vector<ImagesAt>& certain : {own, same})
    if (!certain.empty())
      return {std::find(certain.begin(), certain.end(), images) != certain.end() ? images : certain[0]};
  ends.insert(ends.end(), others.begin(), others.end());
  return ends;
}

}  // namespace

ImagesApart keep_images_apart(const Op& op, std::span<const BatchInput> inputs, const TensorType& output) {
  std::vector<InputInfo> infos;
  for (const BatchInput& input : inputs) infos.push_back(input.info);
  const auto refuse = [](std::string why) { return ImagesApart{std::move(why), {}}; };
  if (output.shape.rank() == 0) return refuse("its result has no dimension for the images");
  const std::optional<AxisMap> map = op.axis_map(infos, output.shape);
  if (!map) return refuse(fmt::format("{} is not known to keep images apart", op.type()));

  std::vector<ImagesAt> places;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const ImagesAt& images = inputs[i].images;
    if (!images) continue;
    const AxisMap::Followed& followed = map->inputs[i];
    if (map->keeps_order && i == 0) {
      places = same_places(infos[i].type.shape, images, output.shape);
      if (places.empty()) return refuse(fmt::format("it merges dimension {}, which holds the images", images.axis));
      continue;
    }
    if (followed.parameter) return refuse(fmt::format("its parameter input {} depends on the images", i));
    const ImagesAt here{followed.follower(images.axis), images.outer};
    if (!here) return refuse(fmt::format("it works along dimension {}, which holds the images", images.axis));
    if (!places.empty() && !(here == places[0])) return refuse("its operands hold the images in different dimensions");
    places = {here};
  }
  const auto axis = static_cast<std::size_t>(places[0].axis);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const AxisMap::Followed& followed = map->inputs[i];
    const std::int8_t own = followed.axis[axis];
    if (inputs[i].images || !infos[i].present || followed.parameter || own == AxisMap::none) continue;
    // An input without images can serve all of them only if it is broadcast, or is a constant that can be repeated.
    const Shape& shape = infos[i].type.shape;
    const bool repeats = followed.stretched[axis] || infos[i].constant != nullptr;
    if (shape[own] != 1 || !repeats)
      return refuse(fmt::format("operand {} is fixed in dimension {}", shape.str(), int{own}));
  }
  return {"", places};
}

}  // namespace lenslet
