// Compress: the slices of an axis, or the elements of the flattened input, for which a condition known before the run
// holds.

#include <fmt/format.h>

#include "ops/core/checks.h"
#include "ops/core/needs_value.h"
#include "ops/movement/moves.h"

namespace lenslet {

namespace {

class Compress final : public Op {
 public:
  explicit Compress(const NodeSpec& spec) {
    AttributeReader reader(spec);
    if (reader.has("axis")) axis_ = reader.required_integer("axis");
    reader.finish();
  }

  std::string_view type() const override { return "Compress"; }
  AttributeList attributes() const override {
    if (!axis_) return {};
    return {{"axis", *axis_}};
  }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& x = required_input(inputs, 0, "input");
    const TensorType& type = required_input(inputs, 1, "condition");
    require_dtype("condition", type.dtype, {DType::boolean});
    require_rank("condition", type.shape, 1, 1);
    const std::int64_t dim = axis_ ? x.shape[axis(x.shape)] : x.shape.elems();
    if (type.shape[0] > dim)
      throw Error(ErrorKind::invalid_model, fmt::format("condition has {} elements for {}", type.shape[0], dim));
    std::int64_t count = 0;
    for (const bool holds : known_value(inputs, 1, "condition").values<bool>()) count += holds ? 1 : 0;
    return {{x.dtype, axis_ ? x.shape.with(axis(x.shape), count) : Shape{count}}};
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape& y) const override {
    if (!axis_) return axes_kept(inputs.size(), {});
    return axes_kept_if(inputs.size(), y.rank(), [along = axis(y)](int a) { return a != along; });
  }

  /// x and y [outer, dim, inner], compressed along the middle.
  struct Extents {
    std::int64_t outer = 1, x = 1, y = 1, inner = 1;
  };
  Extents extents(const Shape& x, const Shape& y) const {
    if (!axis_) return {.x = x.elems(), .y = y.elems()};
    const int along = axis(x);
    Extents extents{.x = x[along], .y = y[along]};
    for (int i = 0; i < x.rank(); ++i)
      if (i != along) (i < along ? extents.outer : extents.inner) *= x[i];
    return extents;
  }

 private:
  int axis(const Shape& shape) const { return resolve_axis(*axis_, shape.rank()); }
  std::optional<std::int64_t> axis_;  ///< none: the input counts as flattened
};

/// A move for each run of slices that stay.
std::vector<Move> moves(const Binding& binding) {
  const auto [outer, x, y, inner] = binding.op<Compress>().extents(binding.shape(0), binding.output_shape());
  const auto condition = binding.constant(1)->values<bool>();
  std::vector<Move> moves;
  std::int64_t taken = 0;
  for (std::size_t i = 0; i < condition.size();) {
    const std::size_t first = i;
    while (i < condition.size() && condition[i]) ++i;
    if (const auto count = static_cast<std::int64_t>(i - first); count > 0) {
      Move move;
      move.from = static_cast<std::int64_t>(first) * inner;
      move.to = taken * inner;
      move.loops.add(outer, x * inner, y * inner);
      move.loops.add(count * inner, 1, 1);
      moves.push_back(move);
      taken += count;
    }
    if (i < condition.size()) ++i;
  }
  return moves;
}

constexpr auto kernels = on_either({.reads = input_bit(0), .bind = bind_moves<moves>});

}  // namespace

OpParts compress() { return {make_from<Compress>, kernels}; }

}  // namespace lenslet
