#include "ops/movement/layout_convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/cuda_built.h"
#include "ops/movement/layout_convert_cuda.h"
#include "ops/movement/moves.h"
#include "ops/movement/padding.h"
#include "ops/movement/transpose_planes.h"

namespace lenslet {

namespace {

class LayoutConvert final : public Op {
 public:
  LayoutConvert(const Format& f, const Format& t) : from(f), to(t) {}

  const Format from, to;

  std::string_view type() const override { return "LayoutConvert"; }
  AttributeList attributes() const override { return {{"from", to_string(from)}, {"to", to_string(to)}}; }
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    if (inputs.empty() || !inputs[0].present || inputs[0].type.shape.rank() != 4)
      throw Error(ErrorKind::invalid_model, "LayoutConvert: input is no 4-D tensor");
    return {inputs[0].type};
  }
  std::size_t elementwise_inputs() const override { return any_number; }
  bool gives_input_back(std::span<const InputInfo>) const override { return from == to; }
};

/// Between nchw and nhwc: matrix transposes.
class BoundPlanes final : public BoundKernel {
 public:
  explicit BoundPlanes(const Binding& binding) : from_(binding.format(0)), to_(binding.output_format()) {}
  void run(const KernelRun& run) const override {
    const Tensor& x = run.inputs[0];
    const std::size_t element_bytes = dtype_bytes(x.dtype());
    void* y = run.outputs[0].data();
    if constexpr (cuda_built)
      if (run.cuda != nullptr)
        return cuda::convert_layout(*run.cuda, element_bytes, x.shape(), from_, to_, x.data(), y);
    const std::int64_t channels = x.shape()[1], pixels = x.shape()[2] * x.shape()[3];
    const bool to_nhwc = to_ == formats::nhwc;
    transpose_planes(x.data(), y, element_bytes, x.shape()[0], to_nhwc ? channels : pixels, to_nhwc ? pixels : channels,
                     *run.pool);
  }

 private:
  Format from_, to_;
};

/// Between any two formats. Channels are split into runs with constant strides on both sides; if both formats have
/// blocks, their common period repeats.
std::vector<Move> general_moves(const Format& from_format, const Format& to_format, const Shape& shape) {
  const Strides from(from_format, shape), to(to_format, shape);
  const std::int64_t period = std::lcm(from.block, to.block);
  const bool last = to_format.order == Format::Order::channels_last, blocked = to.block > 1;
  const auto step = [](const Strides& s) { return s.block > 1 ? 1 : s.step[1]; };  // to the next channel of a run
  const auto end_of_run = [](const Strides& s, std::int64_t c) {
    return s.block > 1 ? (c / s.block + 1) * s.block : std::numeric_limits<std::int64_t>::max();
  };
  std::vector<Move> moves;
  const auto add = [&](std::int64_t first, std::int64_t end, std::int64_t periods) {
    for (std::int64_t c = first, next = 0; c < end; c = next) {
      next = std::min({end, end_of_run(from, c), end_of_run(to, c)});
      StridedLoops loops;
      const auto axis = [&](std::size_t a) { loops.add(shape[static_cast<int>(a)], from.step[a], to.step[a]); };
      const auto repeat = [&] {
        loops.add(periods, period / from.block * from.step[1], period / to.block * to.step[1]);
      };
      const auto run = [&, count = next - c] { loops.add(count, step(from), step(to)); };
      axis(0);
      if (!last) repeat();
      if (!last && !blocked) run();
      axis(2);
      axis(3);
      if (last) repeat();
      if (last || blocked) run();
      moves.push_back({.loops = loops, .from = from.at(0, c, 0, 0), .to = to.at(0, c, 0, 0)});
    }
  };
  const std::int64_t whole = shape[1] / period * period;
  if (whole > 0) add(0, period, whole / period);
  add(whole, shape[1], 1);
  return moves;
}

std::unique_ptr<const BoundKernel> bind_conversion(const Binding& binding) {
  const Format &from = binding.format(0), &to = binding.output_format();
  const Shape& shape = binding.shape(0);
  const std::int64_t stored = Strides(to, shape).stored;
  if (shape.elems() == 0) return std::make_unique<BoundMoves>(binding, std::vector<Move>(), stored > 0);
  if (stored == shape.elems() && same_bytes(from, to, shape)) {
    Move all;
    all.loops.add(stored, 1, 1);
    return std::make_unique<BoundMoves>(binding, std::vector<Move>{all});
  }
  const bool dense = from.channel_block == 1 && to.channel_block == 1 && from.halo == Format::Halo();
  if (from.pixel_pitch != 0 || to.pixel_pitch != 0)  // pitch padding is left unchanged
    return std::make_unique<BoundMoves>(binding, general_moves(from, to, shape));
  if (dense && to.halo == Format::Halo()) return std::make_unique<BoundPlanes>(binding);
  if (dense && from.order == to.order) {
    const std::int64_t pads[] = {0, 0, to.halo.top, to.halo.left, 0, 0, to.halo.bottom, to.halo.right};
    return std::make_unique<BoundPadding>(binding, PadMode::constant, pads, 0);
  }
  return std::make_unique<BoundMoves>(binding, general_moves(from, to, shape), stored != shape.elems());
}

// Calibrated on steps that a convolution required: a small one stays in the CPU's caches.
Offer offer(const Problem& problem, const Target& target) {
  const auto& op = problem.as<LayoutConvert>();
  const DeviceProfile& device = target.device;
  const double bytes = conversion_bytes(op.from, op.to, problem.shape(0), problem.outputs()[0].dtype);
  const bool cached = device.kind == DeviceKind::cpu && bytes < static_cast<double>(device.l2_bytes);
  Candidate candidate;
  candidate.inputs = {op.from};
  candidate.outputs = {op.to};
  candidate.estimated_us = bytes / (cached ? 3 * device.bytes_per_us : device.bytes_per_us) +
                           (device.kind == DeviceKind::cpu ? 2 : device.launch_us + 0.5);
  return candidate;
}

constexpr auto kernels = on_either({.offer = offer, .bind = bind_conversion});

std::shared_ptr<const Op> make(const NodeSpec& spec) {
  AttributeReader reader(spec);
  const auto format = [&](std::string_view name) {
    const std::string text = reader.text(name, "");
    const auto parsed = parse_format(text);
    if (!parsed) throw Error(ErrorKind::invalid_model, fmt::format("attribute {} is \"{}\"", name, text));
    return *parsed;
  };
  const Format from = format("from"), to = format("to");
  reader.finish();
  return make_layout_convert(from, to);
}

}  // namespace

std::shared_ptr<const Op> make_layout_convert(const Format& from, const Format& to) {
  return std::make_shared<LayoutConvert>(from, to);
}

OpParts layout_convert() { return {make, kernels}; }

}  // namespace lenslet
