// DepthToSpace and SpaceToDepth: b x b blocks of pixels <-> channels.
//   DCR: y[n, c, h*b + i, w*b + j] = x[n, (i*b + j)*C + c, h, w]
//   CRD: y[n, c, h*b + i, w*b + j] = x[n, c*b*b + i*b + j, h, w]
// SpaceToDepth is the inverse, before opset 28 of DCR alone.

#include <fmt/format.h>

#include "ops/core/checks.h"
#include "ops/core/shape_args.h"
#include "ops/movement/moves.h"

namespace lenslet {

namespace {

/// Both ways.
class BlockOp final : public Op {
 public:
  bool to_space;
  std::int64_t block;
  bool depth_first = true;  ///< DCR

  explicit BlockOp(const NodeSpec& spec) : to_space(spec.name == "DepthToSpace") {
    AttributeReader reader(spec);
    block = reader.required_integer("blocksize");
    // Larger than any image side that fits the limits; the square does not overflow.
    if (block < 1 || block > (1 << 20))
      throw Error(ErrorKind::invalid_model, fmt::format("blocksize={} makes no sense", block));
    const bool has_mode = to_space || !spec.before(28);
    const std::string mode = has_mode ? reader.text("mode", "DCR") : "DCR";
    reader.finish();
    if (mode != "DCR" && mode != "CRD")
      throw Error(ErrorKind::invalid_model, fmt::format("mode={} is neither DCR nor CRD", mode));
    depth_first = mode == "DCR";
  }

  std::string_view type() const override { return to_space ? "DepthToSpace" : "SpaceToDepth"; }
  AttributeList attributes() const override {
    return {{"blocksize", block}, {"mode", std::string(depth_first ? "DCR" : "CRD")}};
  }
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& data = required_input(inputs, 0, "input");
    const Shape& s = data.shape;
    if (s.rank() != 4) throw Error(ErrorKind::invalid_model, fmt::format("input must be [N,C,H,W], not {}", s.str()));
    const std::int64_t square = block * block;
    if (to_space && s[1] % square != 0)
      throw Error(ErrorKind::invalid_model,
                  fmt::format("{} channels cannot make blocks of {}x{} pixels", s[1], block, block));
    if (!to_space && (s[2] % block != 0 || s[3] % block != 0))
      throw Error(ErrorKind::invalid_model,
                  fmt::format("{} x {} pixels do not divide into blocks of {}", s[2], s[3], block));
    if (to_space)
      return {{data.dtype, Shape{s[0], s[1] / square, multiply_dims(s[2], block), multiply_dims(s[3], block)}}};
    return {{data.dtype, Shape{s[0], multiply_dims(s[1], square), s[2] / block, s[3] / block}}};
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo>, const Shape&) const override { return axes_kept(1, {0}); }
  bool gives_input_back(std::span<const InputInfo>) const override { return block == 1; }
};

std::vector<Move> moves(const Binding& binding) {
  const auto& op = binding.op<BlockOp>();
  const Shape &x = binding.shape(0), &y = binding.output_shape();
  const Shape &image = op.to_space ? y : x, &depth = op.to_space ? x : y;
  const AxisSteps of_x = element_strides(x, binding.format(0)), of_y = element_strides(y, binding.output_format());
  const AxisSteps &in_image = op.to_space ? of_y : of_x, &in_depth = op.to_space ? of_x : of_y;

  // Six loops over the image's pixels, from depth to image.
  using Loop = StridedLoops::Loop;
  const std::int64_t block = op.block, channels = image[1];
  const std::int64_t c_step = op.depth_first ? 1 : block * block, j_step = op.depth_first ? channels : 1;
  const Loop n{depth[0], in_depth[0], in_image[0]}, c{channels, c_step * in_depth[1], in_image[1]};
  const Loop h{depth[2], in_depth[2], block * in_image[2]}, i{block, block * j_step * in_depth[1], in_image[2]};
  const Loop w{depth[3], in_depth[3], block * in_image[3]}, j{block, j_step * in_depth[1], in_image[3]};

  // In the output's memory order, so that writes are sequential.
  const bool last = binding.output_format() == formats::nhwc;
  using Order = std::array<Loop, 6>;
  StridedLoops loops;
  for (const Loop& loop : op.to_space ? last ? Order{n, h, i, w, j, c} : Order{n, c, h, i, w, j}
                          : last ? Order{n, h, w, i, j, c}
                                      : Order{n, i, j, c, h, w})
    loops.add(loop.dim, op.to_space ? loop.from : loop.to, op.to_space ? loop.to : loop.from);
  return {{.loops = loops}};
}

constexpr auto kernels = on_either({.formats = nchw_or_nhwc, .bind = bind_moves<moves>});

}  // namespace

OpParts depth_to_space() { return {make_from<BlockOp>, kernels}; }

}  // namespace lenslet
