// ReverseSequence: reverses the first elements of each batch entry along the time axis. Their number is known before
// the run.

#include <fmt/format.h>

#include "ops/core/checks.h"
#include "ops/core/shape_args.h"
#include "ops/movement/moves.h"

namespace lenslet {

namespace {

class ReverseSequence final : public Op {
 public:
  explicit ReverseSequence(const NodeSpec& spec) {
    AttributeReader reader(spec);
    batch_axis_ = reader.integer("batch_axis", 1);
    time_axis_ = reader.integer("time_axis", 0);
    reader.finish();
    if (batch_axis_ < 0 || batch_axis_ > 1 || time_axis_ != 1 - batch_axis_)
      throw Error(ErrorKind::invalid_model,
                  fmt::format("batch_axis={} time_axis={}: one must be 0, the other 1", batch_axis_, time_axis_));
  }

  std::string_view type() const override { return "ReverseSequence"; }
  AttributeList attributes() const override { return {{"batch_axis", batch_axis_}, {"time_axis", time_axis_}}; }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& x = required_input(inputs, 0, "input");
    require_rank("input", x.shape, 2, Shape::max_rank);
    (void)lengths(inputs);
    return {x};
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape& y) const override {
    // Lengths differ between batch entries.
    return axes_kept_if(inputs.size(), y.rank(), [](int axis) { return axis > 1; });
  }

  int batch_axis() const { return static_cast<int>(batch_axis_); }
  int time_axis() const { return static_cast<int>(time_axis_); }
  /// The length of each batch entry, in [0, time].
  std::vector<std::int64_t> lengths(std::span<const InputInfo> inputs) const {
    const Shape& x = inputs[0].type.shape;
    required_input(inputs, 1, "sequence_lens");
    const std::vector<std::int64_t> lengths = *constant_integers(inputs, 1, "sequence_lens");
    if (static_cast<std::int64_t>(lengths.size()) != x[batch_axis()])
      throw Error(ErrorKind::invalid_model, fmt::format("{} sequence_lens for {}", lengths.size(), x.str()));
    for (const std::int64_t length : lengths)
      if (length < 0 || length > x[time_axis()])
        throw Error(ErrorKind::invalid_model, fmt::format("a sequence of {} in {}", length, x.str()));
    return lengths;
  }

 private:
  std::int64_t batch_axis_, time_axis_;
};

/// Two moves per batch entry.
std::vector<Move> moves(const Binding& binding) {
  const auto& op = binding.op<ReverseSequence>();
  const Shape& x = binding.shape(0);
  const AxisSteps to = element_strides(x, formats::nchw);
  const auto time = static_cast<std::size_t>(op.time_axis()), batch = static_cast<std::size_t>(op.batch_axis());
  AxisSteps back = to;
  back[time] = -to[time];
  std::vector<Move> moves;
  std::int64_t entry = 0;
  for (const std::int64_t length : op.lengths(binding.problem.inputs())) {
    const std::int64_t start = entry++ * to[batch];
    const auto add = [&](const AxisSteps& from, std::int64_t count, std::int64_t first, std::int64_t written) {
      if (count == 0) return;
      const Shape part = x.with(op.batch_axis(), 1).with(op.time_axis(), count);
      moves.push_back(
          {.loops{part, formats::nchw, from, to}, .from = start + first * to[time], .to = start + written * to[time]});
    };
    add(back, length, length - 1, 0);
    add(to, x[op.time_axis()] - length, length, length);
  }
  return moves;
}

constexpr auto kernels = on_either({.reads = input_bit(0), .bind = bind_moves<moves>});

}  // namespace

OpParts reverse_sequence() { return {make_from<ReverseSequence>, kernels}; }

}  // namespace lenslet
