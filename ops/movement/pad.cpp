#include "ops/movement/pad.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <span>

#include "ops/core/grain.h"
#include "ops/core/shape_args.h"
#include "ops/core/strided_copy.h"
#include "ops/core/type_check.h"
#include "ops/movement/pad_cuda.h"

namespace lenslet {
namespace {

constexpr std::size_t kData = 0, kPads = 1, kValue = 2, kAxes = 3;

/// By axis; no heap memory, since the kernel resolves its pads again.
struct AxisPads {
  std::array<std::int64_t, Shape::max_rank> before{}, after{};
};

const Tensor& known(std::span<const InputInfo> inputs, std::size_t i, const char* what) {
  if (inputs[i].constant == nullptr)
    throw Error(ErrorKind::unsupported, fmt::format("Pad: input {} is not known before the run", what));
  return *inputs[i].constant;
}

AxisPads resolve(const PadOp& op, std::span<const InputInfo> inputs) {
  const int rank = required_input(inputs, kData, "data").shape.rank();
  std::span<const std::int64_t> list;
  if (op.attribute_pads) {
    list = *op.attribute_pads;
  } else {
    require_dtype("Pad: input pads", required_input(inputs, kPads, "pads").dtype, {DType::i64});
    list = known(inputs, kPads, "pads").values<std::int64_t>();
  }
  AxisInts axes;
  axes.size = rank;
  for (int i = 0; i < rank; ++i) axes.values[static_cast<std::size_t>(i)] = i;
  if (present(inputs, kAxes)) axes = axis_ints(known(inputs, kAxes, "axes"), "axes");
  if (list.size() != 2 * static_cast<std::size_t>(axes.size))
    throw Error(ErrorKind::invalid_model,
                fmt::format("Pad: {} pads for {} axes, expected {}", list.size(), axes.size, 2 * axes.size));
  (void)axis_mask(axes.span(), rank);  // outside, or named twice
  AxisPads pads;
  for (int i = 0; i < axes.size; ++i) {
    const auto axis = static_cast<std::size_t>(resolve_axis(axes[i], rank));
    pads.before[axis] = list[static_cast<std::size_t>(i)];
    pads.after[axis] = list[static_cast<std::size_t>(i + axes.size)];
  }
  return pads;
}

/// All axes in the order in which `layout` stores them, outermost first.
struct MemoryAxes {
  std::array<PadAxis, Shape::max_rank> axes;
  std::size_t rank = 0;
};

/// `x` is the padded tensor; pads and axes that are inputs are read from host_inputs.
MemoryAxes memory_axes(const PadOp& op, const Tensor& x, std::span<const Tensor> host_inputs, Format layout) {
  std::array<InputInfo, 4> infos;
  for (std::size_t i = kPads; i < std::min(infos.size(), host_inputs.size()); ++i)
    if (!host_inputs[i].empty()) infos[i] = {true, {host_inputs[i].dtype(), host_inputs[i].shape()}, &host_inputs[i]};
  infos[kData] = {true, {x.dtype(), x.shape()}, nullptr};
  const AxisPads pads = resolve(op, infos);
  MemoryAxes memory;
  memory.rank = static_cast<std::size_t>(x.shape().rank());
  const auto order = memory_order(x.shape().rank(), layout);
  for (std::size_t i = 0; i < memory.rank; ++i) {
    const auto axis = static_cast<std::size_t>(order[i]);
    memory.axes[i] = PadAxis::of(x.shape()[order[i]], pads.before[axis], pads.after[axis]);
  }
  return memory;
}

// The fill value as the data's type has it; `bytes` long enough for every type.
using ValueBytes = std::array<std::byte, 8>;

ValueBytes value_bytes(const PadOp& op, DType dtype, std::span<const Tensor> host_inputs) {
  ValueBytes bytes{};
  if (present(host_inputs, kValue)) {
    std::memcpy(bytes.data(), host_inputs[kValue].data(), dtype_bytes(dtype));
  } else if (op.attribute_value != 0) {
    const auto value = static_cast<float>(op.attribute_value);
    if (dtype == DType::f64)
      std::memcpy(bytes.data(), &op.attribute_value, sizeof(double));
    else
      std::memcpy(bytes.data(), &value, sizeof(float));
  }
  return bytes;
}

void fill(std::byte* to, std::int64_t bytes, const ValueBytes& value, std::size_t elem_bytes) {
  if (std::all_of(value.begin(), value.end(), [](std::byte b) { return b == std::byte{0}; })) {
    std::memset(to, 0, static_cast<std::size_t>(bytes));
    return;
  }
  for (std::int64_t i = 0; i < bytes; i += static_cast<std::int64_t>(elem_bytes))
    std::memcpy(to + i, value.data(), elem_bytes);
}

PadMode parse_mode(const std::string& text, std::int64_t opset) {
  if (text == "constant") return PadMode::constant;
  if (text == "reflect") return PadMode::reflect;
  if (text == "edge") return PadMode::edge;
  if (text == "wrap" && opset >= 19) return PadMode::wrap;
  throw Error(ErrorKind::invalid_model, fmt::format("attribute mode is \"{}\"", text));
}

const char* mode_name(PadMode mode) {
  switch (mode) {
    case PadMode::constant:
      return "constant";
    case PadMode::reflect:
      return "reflect";
    case PadMode::edge:
      return "edge";
    case PadMode::wrap:
      return "wrap";
  }
  return "?";
}

}  // namespace

AttributeList PadOp::attributes() const {
  AttributeList list;
  list.emplace_back("mode", std::string(mode_name(mode)));
  if (attribute_pads) {
    list.emplace_back("pads", *attribute_pads);
    list.emplace_back("value", attribute_value);
  }
  return list;
}

std::vector<std::int64_t> PadOp::pads(std::span<const InputInfo> inputs) const {
  const AxisPads by_axis = resolve(*this, inputs);
  const auto rank = static_cast<std::ptrdiff_t>(inputs[kData].type.shape.rank());
  std::vector<std::int64_t> list(by_axis.before.begin(), by_axis.before.begin() + rank);
  list.insert(list.end(), by_axis.after.begin(), by_axis.after.begin() + rank);
  return list;
}

std::vector<TensorType> PadOp::infer(std::span<const InputInfo> inputs) const {
  const TensorType& data = required_input(inputs, kData, "data");
  const AxisPads by_axis = resolve(*this, inputs);
  if (attribute_pads && attribute_value != 0)
    require_dtype("Pad with a value: data", data.dtype, {DType::f32, DType::f64});
  if (present(inputs, kValue)) {
    require_dtype("Pad: constant value", inputs[kValue].type.dtype, {data.dtype});
    if (inputs[kValue].type.shape.elems() != 1)
      throw Error(ErrorKind::invalid_model, fmt::format("Pad: constant value of shape {}, expected one element",
                                                        inputs[kValue].type.shape.str()));
  }
  Shape y = data.shape;
  for (int axis = 0; axis < y.rank(); ++axis) {
    const std::int64_t dim = data.shape[axis];
    const std::int64_t before = by_axis.before[static_cast<std::size_t>(axis)];
    const std::int64_t after = by_axis.after[static_cast<std::size_t>(axis)];
    constexpr std::int64_t bound = std::int64_t{1} << 40;  // of a tensor's elements
    if (before > bound || after > bound)
      throw Error(ErrorKind::limit, fmt::format("Pad: pads {},{} of axis {}", before, after, axis));
    const bool cut_away =
        before < -dim || after < -dim || std::min<std::int64_t>(before, 0) + std::min<std::int64_t>(after, 0) < -dim;
    if (cut_away)
      throw Error(ErrorKind::invalid_model, fmt::format("Pad: pads {},{} cut more than axis {} of {} has", before,
                                                        after, axis, data.shape.str()));
    const PadAxis map = PadAxis::of(dim, before, after);
    if (map.kept == 0 && map.out > 0 && mode != PadMode::constant)
      throw Error(ErrorKind::invalid_model,
                  fmt::format("Pad: nothing to {} along axis {} of {}", mode_name(mode), axis, data.shape.str()));
    y = y.with(axis, map.out);
  }
  (void)y.elems();
  return {{data.dtype, y}};
}

bool PadOp::runs_in(Format, std::span<const InputInfo>) const { return true; }

void PadOp::run_cpu(const RunContext& context) const {
  const Tensor& x = context.inputs[kData];
  Tensor& y = context.outputs[0];
  const MemoryAxes memory = memory_axes(*this, x, context.inputs, y.format());
  const auto& axes = memory.axes;
  // Whatever lies inside of the last axis that changes is copied whole; that axis is cut into what is before, kept and
  // after; the axes around it are walked.
  const auto elem_bytes = static_cast<std::int64_t>(dtype_bytes(x.dtype()));
  std::size_t changed = std::max<std::size_t>(memory.rank, 1) - 1;
  std::int64_t inner = elem_bytes;
  for (; changed > 0 && axes[changed].unchanged(); --changed) inner *= axes[changed].out;
  const PadAxis& line = axes[changed];  // of a scalar: one element, unchanged
  std::int64_t lines = 1;
  for (std::size_t i = 0; i < changed; ++i) lines *= axes[i].out;

  const auto* from = static_cast<const std::byte*>(x.data());
  auto* to = static_cast<std::byte*>(y.data());
  const ValueBytes value = value_bytes(*this, x.dtype(), context.inputs);
  const std::int64_t line_bytes = line.out * inner;
  const std::int64_t grain = std::max<std::int64_t>(1, copy_grain_bytes / std::max<std::int64_t>(line_bytes, 1));

  context.pool.parallel_for(lines, grain, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t l = begin; l < end; ++l) {
      std::byte* out = to + l * line_bytes;
      std::int64_t source = 0, rest = l, step = 1;  // line of x that line l of y comes from
      for (std::size_t i = changed; i-- > 0;) {
        const std::int64_t index = axes[i].source(rest % axes[i].out, mode);
        source = index < 0 || source < 0 ? -1 : source + index * step;
        rest /= axes[i].out;
        step *= axes[i].dim;
      }
      if (source < 0) {
        fill(out, line_bytes, value, static_cast<std::size_t>(elem_bytes));
        continue;
      }
      const std::byte* in = from + source * line.dim * inner;
      const auto pad_range = [&](std::int64_t first, std::int64_t count) {
        if (mode == PadMode::constant) {
          fill(out + first * inner, count * inner, value, static_cast<std::size_t>(elem_bytes));
          return;
        }
        for (std::int64_t o = first; o < first + count; ++o)
          std::memcpy(out + o * inner, in + line.source(o, mode) * inner, static_cast<std::size_t>(inner));
      };
      pad_range(0, line.before);
      std::memcpy(out + line.before * inner, in + line.first * inner, static_cast<std::size_t>(line.kept * inner));
      pad_range(line.before + line.kept, line.out - line.before - line.kept);
    }
  });
}

std::optional<std::string> PadOp::refuse_cuda(std::span<const InputInfo> inputs) const {
  if (present(inputs, kValue) && inputs[kValue].constant == nullptr) return "the constant value is computed by the run";
  return std::nullopt;
}

void PadOp::run_cuda(const CudaRun& run) const {
  if constexpr (cuda_built) {
    const Tensor& x = run.inputs[kData];
    Tensor& y = run.outputs[0];
    const auto [axes, rank] = memory_axes(*this, x, run.host_inputs, y.format());
    const auto value = std::bit_cast<std::uint64_t>(value_bytes(*this, x.dtype(), run.host_inputs));
    cuda::pad(run.context, dtype_bytes(x.dtype()), mode, std::span(axes).first(rank), value, x.data(), y.data());
  }
}

std::shared_ptr<const Op> make_pad(const NodeSpec& spec) {
  auto op = std::make_shared<PadOp>();
  AttributeReader reader(spec.attributes);
  op->mode = parse_mode(reader.text("mode", "constant"), spec.opset);
  if (spec.opset < 11) {
    if (!reader.has("pads")) throw Error(ErrorKind::invalid_model, "attribute pads is missing");
    op->attribute_pads = reader.integers("pads");
    op->attribute_value = reader.real("value", 0);
    if (spec.inputs != 1) throw Error(ErrorKind::invalid_model, "Pad before opset 11 has one input");
  }
  reader.finish();
  return op;
}

std::shared_ptr<const Op> make_explicit_pad(std::int64_t top, std::int64_t left, std::int64_t bottom,
                                            std::int64_t right) {
  auto op = std::make_shared<PadOp>();
  op->attribute_pads = {0, 0, top, left, 0, 0, bottom, right};
  return op;
}

}  // namespace lenslet
