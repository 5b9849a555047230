#include "runtime/passes/quantized/moved_inputs.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "runtime/passes/quantized/linear.h"

namespace lenslet {
namespace {

constexpr std::string_view movers[] = {"MaxPool",   "Reshape",  "Flatten",      "Transpose",    "Squeeze",
                                       "Unsqueeze", "Identity", "DepthToSpace", "SpaceToDepth", "ChannelShuffle",
                                       "Slice",     "Split",    "Gather",       "Expand",       "Tile",
                                       "ReduceMax", "ReduceMin"};

}  // namespace

std::vector<std::size_t> moved_inputs(const GraphEdit& edit, const Node& node) {
  const std::string_view type = node.type();
  if (type == "MaxPool" && node.outputs.size() > 1 && node.outputs[1] != no_id && edit.uses(node.outputs[1]) > 0)
    return {};
  if (type == "Resize" || type == "Upsample") {
    const bool nearest = attribute<std::string>(*node.op, "mode") == "nearest";
    return nearest && attribute<std::string>(*node.op, "coordinate_transformation_mode") != "tf_crop_and_resize"
               ? std::vector<std::size_t>{0}
               : std::vector<std::size_t>{};
  }
  if (type == "Pad") {
    if (integers_attribute(*node.op, "pads")) return {};
    if (attribute<std::string>(*node.op, "mode") == "constant") return {0, 2};
    return input_of(node, 2) == no_id ? std::vector<std::size_t>{0} : std::vector<std::size_t>{};
  }
  // A function of one number is a table.
  const bool mixes = (type == "Min" || type == "Max") && std::ranges::any_of(node.inputs, [&](ValueId id) {
                       const Value& value = edit.graph().value(id);
                       return value.is_constant() ? only_element(value.constant).empty() : id != node.inputs[0];
                     });
  if (type == "Concat" || mixes) {
    std::vector<std::size_t> all;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) all.push_back(i);
    return all;
  }
  if (std::ranges::find(movers, type) != std::end(movers)) return {0};
  return {};
}

}  // namespace lenslet
