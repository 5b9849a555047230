// ChannelShuffle: the channels of G groups taken in turn (Zhang et al.: ShuffleNet, 2017, arXiv 1707.01083):
//   y[n, j*G + g, h, w] = x[n, g*C/G + j, h, w]
// Files write it as Reshape, Transpose and Reshape, in five dimensions, which have no format but nchw; the pass
// find_shuffles makes one step of them.

#include <fmt/format.h>

#include "ops/core/checks.h"
#include "ops/movement/moves.h"

namespace lenslet {

namespace {

class ChannelShuffle final : public Op {
 public:
  explicit ChannelShuffle(const NodeSpec& spec) {
    AttributeReader reader(spec);
    groups = reader.required_integer("groups");
    reader.finish();
    if (groups < 1) throw Error(ErrorKind::invalid_model, fmt::format("groups={} makes no sense", groups));
  }

  std::string_view type() const override { return "ChannelShuffle"; }
  AttributeList attributes() const override { return {{"groups", groups}}; }
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& x = required_input(inputs, 0, "input");
    if (x.shape.rank() != 4)
      throw Error(ErrorKind::invalid_model, fmt::format("input must be [N,C,H,W], not {}", x.shape.str()));
    if (x.shape[1] % groups != 0)
      throw Error(ErrorKind::invalid_model, fmt::format("{} channels are no {} groups", x.shape[1], groups));
    return {x};
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo>, const Shape&) const override {
    return axes_kept(1, {0, 2, 3});
  }
  bool gives_input_back(std::span<const InputInfo> inputs) const override {
    return groups == 1 || groups == inputs[0].type.shape[1];
  }

  std::int64_t groups = 1;
};

std::vector<Move> moves(const Binding& binding) {
  const Shape& x = binding.shape(0);
  const AxisSteps from = element_strides(x, binding.format(0)), to = element_strides(x, binding.output_format());
  const std::int64_t groups = binding.op<ChannelShuffle>().groups, of_group = x[1] / groups;

  // In the memory order of the output.
  StridedLoops loops;
  loops.add(x[0], from[0], to[0]);
  const auto add_image = [&] {
    loops.add(x[2], from[2], to[2]);
    loops.add(x[3], from[3], to[3]);
  };
  if (binding.output_format() == formats::nhwc) add_image();
  loops.add(of_group, from[1], groups * to[1]);
  loops.add(groups, of_group * from[1], to[1]);
  if (binding.output_format() != formats::nhwc) add_image();
  return {{.loops = loops}};
}

constexpr auto kernels = on_either({.formats = nchw_or_nhwc, .bind = bind_moves<moves>});

}  // namespace

OpParts channel_shuffle() { return {make_from<ChannelShuffle>, kernels}; }

}  // namespace lenslet
