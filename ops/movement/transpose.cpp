// Transpose: output axis i is input axis perm[i].

#include <fmt/format.h>

#include <algorithm>

#include "ops/core/checks.h"
#include "ops/movement/moves.h"

namespace lenslet {

namespace {

class Transpose final : public Op {
 public:
  explicit Transpose(const NodeSpec& spec) {
    AttributeReader reader(spec);
    perm_ = reader.integers("perm");
    reader.finish();
    std::vector<std::int64_t> sorted = perm_;
    std::ranges::sort(sorted);
    for (std::size_t i = 0; i < sorted.size(); ++i)
      if (sorted[i] != static_cast<std::int64_t>(i))
        throw Error(ErrorKind::invalid_model, fmt::format("perm=[{}] is not a permutation", fmt::join(perm_, ",")));
  }

  std::string_view type() const override { return "Transpose"; }
  AttributeList attributes() const override {
    if (perm_.empty()) return {};
    return {{"perm", perm_}};
  }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    TensorType type = required_input(inputs, 0, "data");
    const Shape x = type.shape;
    if (!perm_.empty() && static_cast<int>(perm_.size()) != x.rank())
      throw Error(ErrorKind::invalid_model,
                  fmt::format("perm has {} elements for an input of shape {}", perm_.size(), x.str()));
    for (int i = 0; i < x.rank(); ++i) type.shape = type.shape.with(i, x[source_axis(i, x.rank())]);
    return {type};
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo>, const Shape& y) const override {
    AxisMap map = axes_kept(1, {});
    for (int i = 0; i < y.rank(); ++i)
      map.inputs[0].axis[static_cast<std::size_t>(i)] = static_cast<std::int8_t>(source_axis(i, y.rank()));
    return map;
  }
  /// True if dimensions larger than 1 keep their order and all keep their sizes.
  bool gives_input_back(std::span<const InputInfo> inputs) const override {
    const Shape& x = inputs[0].type.shape;
    int last = -1;
    for (int i = 0; i < x.rank(); ++i) {
      const int from = source_axis(i, x.rank());
      if (x[from] != x[i] || (x[from] != 1 && from < last)) return false;
      if (x[from] != 1) last = from;
    }
    return true;
  }

  int source_axis(int axis, int rank) const {
    return perm_.empty() ? rank - 1 - axis : static_cast<int>(perm_[static_cast<std::size_t>(axis)]);
  }

 private:
  std::vector<std::int64_t> perm_;  ///< a permutation; empty: all axes reversed
};

std::vector<Move> moves(const Binding& binding) {
  const Shape& y = binding.output_shape();
  const AxisSteps steps = element_strides(binding.shape(0), formats::nchw);
  AxisSteps from{};
  for (int i = 0; i < y.rank(); ++i)
    from[static_cast<std::size_t>(i)] =
        steps[static_cast<std::size_t>(binding.op<Transpose>().source_axis(i, y.rank()))];
  return {{.loops{y, formats::nchw, from, element_strides(y, formats::nchw)}}};
}

constexpr auto kernels = on_either({.bind = bind_moves<moves>});

}  // namespace

OpParts transpose() { return {make_from<Transpose>, kernels}; }

}  // namespace lenslet
