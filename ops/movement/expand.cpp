// Expand (broadcasts to a shape) and Tile (repeats along each axis). The second input gives the shape or the repeats
// and is known before the run.

#include <fmt/format.h>

#include "ops/core/broadcast.h"
#include "ops/core/checks.h"
#include "ops/core/shape_args.h"
#include "ops/movement/moves.h"

namespace lenslet {

namespace {

class Expand final : public Op {
 public:
  std::string_view type() const override { return "Expand"; }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& data = required_input(inputs, 0, "input");
    const AxisInts dims = required_axis_ints(inputs, 1, "shape");
    for (const std::int64_t dim : dims.span())
      if (dim < 0) throw Error(ErrorKind::invalid_model, fmt::format("shape has the dimension {}", dim));
    return {{data.dtype, broadcast_shapes(data.shape, Shape(dims.span()))}};
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape& y) const override {
    AxisMap map = elementwise_axes(inputs, y, 1);
    map.inputs[0].stretched = {};  // fixed: the shape input names the output's size
    return map;
  }
  bool gives_input_back(std::span<const InputInfo> inputs) const override { return infer(inputs)[0] == inputs[0].type; }
};

std::vector<Move> expand_moves(const Binding& binding) {
  const Shape &x = binding.shape(0), &y = binding.output_shape();
  const AxisSteps steps = element_strides(x, formats::nchw);
  AxisSteps from{};  // 0 where the input is repeated
  for (int i = 0; i < x.rank(); ++i)
    if (x[i] != 1) from[static_cast<std::size_t>(i + y.rank() - x.rank())] = steps[static_cast<std::size_t>(i)];
  return {{.loops{y, formats::nchw, from, element_strides(y, formats::nchw)}}};
}

class Tile final : public Op {
 public:
  std::string_view type() const override { return "Tile"; }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    TensorType type = required_input(inputs, 0, "input");
    const AxisInts repeats = required_axis_ints(inputs, 1, "repeats");
    if (repeats.size != type.shape.rank())
      throw Error(ErrorKind::invalid_model,
                  fmt::format("repeats has {} elements for an input of shape {}", repeats.size, type.shape.str()));
    for (int i = 0; i < repeats.size; ++i) {
      if (repeats[i] < 0) throw Error(ErrorKind::invalid_model, fmt::format("repeats has the element {}", repeats[i]));
      type.shape = type.shape.with(i, multiply_dims(type.shape[i], repeats[i]));
    }
    return {type};
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape& y) const override {
    return axes_kept_if(inputs.size(), y.rank(), [&](int axis) { return y[axis] == inputs[0].type.shape[axis]; });
  }
  bool gives_input_back(std::span<const InputInfo> inputs) const override { return infer(inputs)[0] == inputs[0].type; }
};

std::vector<Move> tile_moves(const Binding& binding) {
  const Shape &x = binding.shape(0), &y = binding.output_shape();
  if (y.elems() == 0) return {};
  const AxisSteps from = element_strides(x, formats::nchw), to = element_strides(y, formats::nchw);
  // Two loops per axis: the repeats, with stride 0 in the input, and the axis itself.
  StridedLoops loops;
  for (int i = 0; i < x.rank(); ++i) {
    const auto axis = static_cast<std::size_t>(i);
    loops.add(y[i] / x[i], 0, x[i] * to[axis]);
    loops.add(x[i], from[axis], to[axis]);
  }
  return {{.loops = loops}};
}

constexpr auto expand_kernels = on_either({.reads = input_bit(0), .bind = bind_moves<expand_moves>});
constexpr auto tile_kernels = on_either({.reads = input_bit(0), .bind = bind_moves<tile_moves>});

}  // namespace

OpParts expand() { return {make_plain<Expand>, expand_kernels}; }
OpParts tile() { return {make_plain<Tile>, tile_kernels}; }

}  // namespace lenslet
