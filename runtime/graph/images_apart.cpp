#include "runtime/graph/images_apart.h"

#include <fmt/format.h>

namespace lenslet {

std::string mixes_images(const Op& op, std::span<const BatchInput> inputs, const TensorType& output) {
  std::vector<InputInfo> infos;
  for (const BatchInput& input : inputs) infos.push_back(input.info);
  if (output.shape.rank() == 0) return "its result has no dimension for the images";
  const std::optional<AxisMap> map = op.axis_map(infos, output.shape);
  if (!map) return fmt::format("{} is not known to keep images apart", op.type());

  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const AxisMap::Followed& followed = map->inputs[i];
    const Shape& shape = infos[i].type.shape;
    if (inputs[i].batched) {
      if (map->keeps_order && i == 0) continue;  // outermost before, and can stay so
      if (followed.parameter) return fmt::format("its parameter input {} depends on the images", i);
      const std::int8_t follower = followed.follower(0);
      if (follower == AxisMap::none) return "it works along dimension 0, which holds the images";
      if (follower != 0) return "it moves the images out of dimension 0";
    } else if (infos[i].present && !followed.parameter && followed.axis[0] != AxisMap::none) {
      // What is fixed can serve every image only where it is stretched, or repeated as a constant of one.
      const bool repeats = followed.stretched[0] || infos[i].constant != nullptr;
      if (shape[followed.axis[0]] != 1 || !repeats)
        return fmt::format("operand {} is fixed in dimension 0", shape.str());
    }
  }
  return {};
}

}  // namespace lenslet
