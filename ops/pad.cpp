#include "ops/pad.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "ops/grain.h"
#include "ops/shape_args.h"
#include "ops/type_check.h"

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

/// One axis: what remains of the input after cropping, and what the mode puts around it.
struct AxisMap {
  std::int64_t out = 1, first = 0, kept = 1, before = 0;

  /// Where output index `o` comes from; -1: the constant.
  std::int64_t source(std::int64_t o, PadMode mode) const {
    std::int64_t i = o - before;
    if (i >= 0 && i < kept) return first + i;
    switch (mode) {
      case PadMode::constant:
        return -1;
      case PadMode::edge:
        return first + (i < 0 ? 0 : kept - 1);
      case PadMode::wrap:
        i %= kept;
        return first + (i < 0 ? i + kept : i);
      case PadMode::reflect:
        break;
    }
    // A mirror at the first and at the last element: period 2 (kept - 1).
    if (kept == 1) return first;
    const std::int64_t period = 2 * (kept - 1);
    i %= period;
    if (i < 0) i += period;
    return first + std::min(i, period - i);
  }
};

/// An axis of `dim` elements with pads; sizes were checked when shapes were inferred.
AxisMap axis_map(std::int64_t dim, std::int64_t before, std::int64_t after) {
  AxisMap map;
  map.first = std::max<std::int64_t>(-before, 0);
  map.kept = dim - map.first - std::max<std::int64_t>(-after, 0);
  map.before = std::max<std::int64_t>(before, 0);
  map.out = map.before + map.kept + std::max<std::int64_t>(after, 0);
  return map;
}

// The fill value as the data's type has it; `bytes` long enough for every type.
using ValueBytes = std::array<std::byte, 8>;

ValueBytes value_bytes(const PadOp& op, const RunContext& context) {
  ValueBytes bytes{};
  if (present(context.inputs, kValue)) {
    std::memcpy(bytes.data(), context.inputs[kValue].data(), dtype_bytes(context.inputs[kValue].dtype()));
  } else if (op.attribute_value != 0) {
    const auto value = static_cast<float>(op.attribute_value);
    if (context.inputs[kData].dtype() == DType::f64)
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
    const AxisMap map = axis_map(dim, before, after);
    if (map.kept == 0 && map.out > 0 && mode != PadMode::constant)
      throw Error(ErrorKind::invalid_model,
                  fmt::format("Pad: nothing to {} along axis {} of {}", mode_name(mode), axis, data.shape.str()));
    y = y.with(axis, map.out);
  }
  (void)y.elems();
  return {{data.dtype, y}};
}

bool PadOp::runs_in(Layout, std::span<const InputInfo>) const { return true; }

void PadOp::run_cpu(const RunContext& context) const {
  const Tensor& x = context.inputs[kData];
  Tensor& y = context.outputs[0];
  std::array<InputInfo, 4> infos;
  for (std::size_t i = 0; i < std::min(infos.size(), context.inputs.size()); ++i)
    if (!context.inputs[i].empty())
      infos[i] = {true, {context.inputs[i].dtype(), context.inputs[i].shape()}, &context.inputs[i]};
  const AxisPads pads = resolve(*this, infos);

  // Axes in memory order.
  const int rank = x.shape().rank();
  const bool channels_last = rank == 4 && y.layout() == Layout::nhwc;
  constexpr std::array<std::size_t, 4> nhwc{0, 2, 3, 1};
  std::array<AxisMap, Shape::max_rank> maps;
  std::array<std::int64_t, Shape::max_rank> dims{};
  for (std::size_t i = 0; i < static_cast<std::size_t>(rank); ++i) {
    const std::size_t axis = channels_last ? nhwc[i] : i;
    dims[i] = x.shape()[static_cast<int>(axis)];
    maps[i] = axis_map(dims[i], pads.before[axis], pads.after[axis]);
  }
  // Whatever lies inside of the last axis that changes is copied whole; that axis is cut into what is before, kept and
  // after; the axes around it are walked.
  const auto elem_bytes = static_cast<std::int64_t>(dtype_bytes(x.dtype()));
  int last = rank - 1;
  std::int64_t inner = elem_bytes;
  for (; last > 0; --last) {
    const AxisMap& map = maps[static_cast<std::size_t>(last)];
    if (map.before != 0 || map.first != 0 || map.out != map.kept) break;
    inner *= map.out;
  }
  const std::size_t changed = static_cast<std::size_t>(std::max(last, 0));
  const AxisMap line = rank == 0 ? AxisMap{} : maps[changed];
  const std::int64_t line_in = rank == 0 ? 1 : dims[changed];
  std::int64_t lines = 1;
  for (std::size_t i = 0; i < changed; ++i) lines *= maps[i].out;

  const auto* from = static_cast<const std::byte*>(x.data());
  auto* to = static_cast<std::byte*>(y.data());
  const ValueBytes value = value_bytes(*this, context);
  const std::int64_t line_bytes = line.out * inner;
  const std::int64_t grain = std::max<std::int64_t>(1, copy_grain_bytes / std::max<std::int64_t>(line_bytes, 1));

  context.pool.parallel_for(lines, grain, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t l = begin; l < end; ++l) {
      std::byte* out = to + l * line_bytes;
      std::int64_t source = 0, rest = l, step = 1;  // line of x that line l of y comes from
      for (std::size_t i = changed; i-- > 0;) {
        const std::int64_t index = maps[i].source(rest % maps[i].out, mode);
        source = index < 0 || source < 0 ? -1 : source + index * step;
        rest /= maps[i].out;
        step *= dims[i];
      }
      if (source < 0) {
        fill(out, line_bytes, value, static_cast<std::size_t>(elem_bytes));
        continue;
      }
      const std::byte* in = from + source * line_in * inner;
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
