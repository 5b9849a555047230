// ChannelShuffle: interleaves the channels of G groups (Zhang et al.: ShuffleNet, 2017, arXiv 1707.01083):
//   y[n, j*G + g, h, w] = x[n, g*C/G + j, h, w]
// Files write Reshape, Transpose and Reshape in five dimensions, which have no format except nchw; the pass
// find_shuffles makes one step of them. x may be G inputs, one per group, instead of their Concat; y may be split into
// equal parts (`num_outputs`) of whole rounds.

#include <fmt/format.h>

#include <algorithm>

#include "base/cuda_built.h"
#include "ops/core/checks.h"
#include "ops/core/grain.h"
#include "ops/core/shape_args.h"
#include "ops/movement/interleave.h"
#include "ops/movement/moves.h"
#include "ops/movement/shuffle_pairs_cuda.h"

namespace lenslet {

namespace {

class ChannelShuffle final : public Op {
 public:
  explicit ChannelShuffle(const NodeSpec& spec) : parts_(static_cast<std::int64_t>(spec.outputs)) {
    AttributeReader reader(spec);
    groups = reader.required_integer("groups");
    if (reader.integer("num_outputs", 1) != parts_)
      throw Error(ErrorKind::invalid_model, fmt::format("num_outputs={} for a node with {} outputs",
                                                        reader.integer("num_outputs", 1), spec.outputs));
    reader.finish();
    if (groups < 1) throw Error(ErrorKind::invalid_model, fmt::format("groups={} makes no sense", groups));
    if (spec.inputs != 1 && static_cast<std::int64_t>(spec.inputs) != groups)
      throw Error(ErrorKind::invalid_model, fmt::format("{} inputs for {} groups", spec.inputs, groups));
  }

  std::string_view type() const override { return "ChannelShuffle"; }
  AttributeList attributes() const override { return {{"groups", groups}, {"num_outputs", parts_}}; }
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& x = required_input(inputs, 0, "input");
    if (x.shape.rank() != 4)
      throw Error(ErrorKind::invalid_model, fmt::format("input must be [N,C,H,W], not {}", x.shape.str()));
    std::int64_t channels = x.shape[1];
    for (std::size_t i = 1; i < inputs.size(); ++i) {
      const Shape& other = required_input(inputs, i, "input").shape;
      if (!(other == x.shape))
        throw Error(ErrorKind::invalid_model,
                    fmt::format("groups of different shapes {} and {}", x.shape.str(), other.str()));
      channels = add_dims(channels, other[1]);
    }
    require_equal_dtypes(inputs);
    if (channels % groups != 0)
      throw Error(ErrorKind::invalid_model, fmt::format("{} channels are no {} groups", channels, groups));
    if (channels / groups % parts_ != 0)
      throw Error(ErrorKind::invalid_model,
                  fmt::format("{} channels in {} groups are not {} equal outputs", channels, groups, parts_));
    return std::vector<TensorType>(static_cast<std::size_t>(parts_), {x.dtype, x.shape.with(1, channels / parts_)});
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape&) const override {
    AxisMap map = axes_kept(1, {0, 2, 3});
    map.inputs.resize(inputs.size(), AxisMap::Followed(map.inputs[0]));
    return map;
  }
  bool gives_input_back(std::span<const InputInfo> inputs) const override {
    return inputs.size() == 1 && parts_ == 1 && (groups == 1 || groups == inputs[0].type.shape[1]);
  }

  std::int64_t groups = 1;

 private:
  std::int64_t parts_ = 1;
};

std::vector<Move> moves(const Binding& binding) {
  const Shape &x = binding.shape(0), &y = binding.output_shape();
  const AxisSteps from = element_strides(x, binding.format(0)), to = element_strides(y, binding.output_format());
  const std::int64_t groups = binding.op<ChannelShuffle>().groups;
  const std::int64_t of_input = binding.problem.inputs().size() == 1 ? groups : 1;  // groups
  const std::int64_t of_group = x[1] / of_input, of_output = y[1] / groups;         // channels of a group

  std::vector<Move> moves;
  for (std::size_t input = 0; input < binding.problem.inputs().size(); ++input) {
    for (std::size_t output = 0; output < binding.problem.outputs().size(); ++output) {
      // In the output's memory order.
      StridedLoops loops;
      loops.add(x[0], from[0], to[0]);
      const auto add_image = [&] {
        loops.add(x[2], from[2], to[2]);
        loops.add(x[3], from[3], to[3]);
      };
      const bool last = binding.output_format().order == Format::Order::channels_last;
      if (last) add_image();
      loops.add(of_output, from[1], groups * to[1]);
      loops.add(of_input, of_group * from[1], to[1]);
      if (!last) add_image();
      moves.push_back({.loops = loops,
                       .input = input,
                       .output = output,
                       .from = static_cast<std::int64_t>(output) * of_output * from[1],
                       .to = static_cast<std::int64_t>(input) * to[1]});
    }
  }
  return moves;
}

/// Two groups as separate inputs, 32-bit elements, nhwc: vectorised.
class BoundInterleave final : public BoundKernel {
 public:
  explicit BoundInterleave(const Binding& binding)
      : pixels_(binding.shape(0)[0] * binding.shape(0)[2] * binding.shape(0)[3]),
        of_group_(binding.shape(0)[1]),
        of_output_(binding.output_shape()[1] / 2) {}

  void run(const KernelRun& run) const override {
    const std::int64_t grain = std::max<std::int64_t>(1, interleave_grain / (2 * of_group_ + 1));
    run.pool->parallel_for(pixels_, grain, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::size_t output = 0; output < run.outputs.size(); ++output) {
        const std::int64_t first = begin * of_group_ + static_cast<std::int64_t>(output) * of_output_;
        auto* const to = static_cast<std::uint32_t*>(run.outputs[output].data()) + begin * 2 * of_output_;
        interleave_pairs({.a = run.in<std::uint32_t>(0) + first,
                          .b = run.in<std::uint32_t>(1) + first,
                          .row = of_group_,
                          .count = of_output_,
                          .rows = end - begin,
                          .to = to});
      }
    });
  }

 private:
  static constexpr std::int64_t interleave_grain = copy_grain_bytes / 4;
  std::int64_t pixels_, of_group_, of_output_;
};

std::unique_ptr<const BoundKernel> bind_on_cpu(const Binding& binding) {
  const bool pairs = binding.problem.inputs().size() == 2 && dtype_bytes(binding.problem.outputs()[0].dtype) == 4;
  if (pairs && binding.output_format() == formats::nhwc) return std::make_unique<BoundInterleave>(binding);
  return bind_moves<moves>(binding);
}

/// Two groups as separate inputs, nhwc on CUDA: vectorised if pixels are whole vectors.
std::unique_ptr<const BoundKernel> bind_on_cuda(const Binding& binding) {
  const Shape &x = binding.shape(0), &y = binding.output_shape();
  const auto inputs = binding.problem.inputs().size(), outputs = binding.problem.outputs().size();
  const auto bytes = static_cast<std::int64_t>(dtype_bytes(binding.problem.outputs()[0].dtype));
  const auto nhwc = [](const Format& format) { return format.order == Format::Order::channels_last; };
  const auto pixel = [](const Shape& shape, const Format& format) { return std::max(shape[1], format.pixel_pitch); };
  const std::int64_t x_pixel = pixel(x, binding.format(0)), y_pixel = pixel(y, binding.output_format());
  const std::int64_t pixels = x[0] * x[2] * x[3], most = std::int64_t{1} << 30;
  const bool alike = inputs == 2 && outputs <= 2 && nhwc(binding.output_format()) && nhwc(binding.format(0)) &&
                     binding.format(0) == binding.format(1) && (bytes == 2 || bytes == 4) && y[1] % 2 == 0;
  if (!cuda_built || !alike || (x_pixel | y_pixel) * bytes % 16 != 0 || pixels > most / y_pixel)
    return bind_moves<moves>(binding);
  return bound([=, shuffle = cuda::ShufflePairs{.element_bytes = static_cast<std::size_t>(bytes),
                                                .pixels = pixels,
                                                .outputs = static_cast<int>(outputs),
                                                .count = static_cast<int>(y[1] / 2),
                                                .x_pixel = static_cast<int>(x_pixel),
                                                .y_pixel = static_cast<int>(y_pixel)}](const KernelRun& run) {
    if constexpr (cuda_built)
      cuda::shuffle_pairs(*run.cuda, shuffle, {run.in<void>(0), run.in<void>(1)}, {run.out<void>(0), run.out<void>(1)});
  });
}

constexpr auto kernels = on_both({.formats = nchw_or_nhwc, .skips_padding = true}, bind_on_cpu, bind_on_cuda);

}  // namespace

OpParts channel_shuffle() { return {make_from<ChannelShuffle>, kernels}; }

}  // namespace lenslet
