// Pad: constant, reflect, edge and wrap; negative pads crop. Pads are an attribute before opset 11, then an input;
// opset 18 adds their axes.

#include "ops/core/needs_value.h"
#include "ops/movement/padding.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/half.h"
#include "ops/core/checks.h"
#include "ops/core/shape_args.h"

namespace lenslet {

namespace {

using Integers = std::vector<std::int64_t>;

constexpr std::string_view mode_names[] = {"constant", "reflect", "edge", "wrap"};  // by PadMode
constexpr std::size_t data_input = 0, pads_input = 1, value_input = BoundPadding::value_input, axes_input = 3;

/// attributes(): mode, and pads and value if they are not inputs.
class Pad final : public Op {
 public:
  explicit Pad(const NodeSpec& spec) {
    AttributeReader reader(spec);
    const std::string name = reader.text("mode", "constant");
    const auto found = std::find(std::begin(mode_names), std::end(mode_names), name);
    if (found == std::end(mode_names) || (name == "wrap" && spec.before(19)))
      throw Error(ErrorKind::invalid_model, fmt::format("attribute mode is \"{}\"", name));
    mode_ = static_cast<PadMode>(found - std::begin(mode_names));
    if (spec.normalised ? reader.has("pads") : spec.before(11)) {
      if (!reader.has("pads")) throw Error(ErrorKind::invalid_model, "attribute pads is missing");
      pads_ = reader.integers("pads");
      value_ = reader.real("value", 0);
      if (spec.inputs != 1) throw Error(ErrorKind::invalid_model, "Pad before opset 11 has one input");
    }
    reader.finish();
  }

  std::string_view type() const override { return "Pad"; }
  AttributeList attributes() const override {
    AttributeList list{{"mode", std::string(mode_name())}};
    if (pads_) {
      list.emplace_back("pads", *pads_);
      list.emplace_back("value", value_);
    }
    return list;
  }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& data = required_input(inputs, data_input, "data");
    const Shape& x = data.shape;
    const Integers pads = this->pads(inputs);
    if (pads_ && value_ != 0)
      require_dtype("Pad with a value: data", data.dtype, {DType::f32, DType::f64, DType::f16, DType::bf16});
    if (present(inputs, value_input)) {
      const TensorType& value = inputs[value_input].type;
      require_dtype("Pad: constant value", value.dtype, {data.dtype});
      if (value.shape.elems() != 1)
        throw Error(ErrorKind::invalid_model,
                    fmt::format("Pad: constant value of shape {}, expected one element", value.shape.str()));
    }
    TensorType y = data;
    for (int axis = 0; axis < x.rank(); ++axis) {
      const std::int64_t dim = x[axis];
      const std::int64_t before = pads[static_cast<std::size_t>(axis)];
      const std::int64_t after = pads[static_cast<std::size_t>(axis + x.rank())];
      constexpr std::int64_t bound = std::int64_t{1} << 40;  // of a tensor's elements
      if (before > bound || after > bound)
        throw Error(ErrorKind::limit, fmt::format("Pad: pads {},{} of axis {}", before, after, axis));
      const bool cut_away =
          before < -dim || after < -dim || std::min<std::int64_t>(before, 0) + std::min<std::int64_t>(after, 0) < -dim;
      if (cut_away)
        throw Error(ErrorKind::invalid_model,
                    fmt::format("Pad: pads {},{} cut more than axis {} of {} has", before, after, axis, x.str()));
      const PadAxis map = PadAxis::of(dim, before, after);
      if (map.kept == 0 && map.out > 0 && mode_ != PadMode::constant)
        throw Error(ErrorKind::invalid_model,
                    fmt::format("Pad: nothing to {} along axis {} of {}", mode_name(), axis, x.str()));
      y.shape = y.shape.with(axis, map.out);
    }
    (void)y.shape.elems();
    return {y};
  }

  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape& y) const override {
    return axes_kept_if(inputs.size(), y.rank(), [&, pads = pads(inputs)](int axis) {
      return pads[static_cast<std::size_t>(axis)] == 0 && pads[static_cast<std::size_t>(axis + y.rank())] == 0;
    });
  }
  std::optional<PermutedOp> permuted(std::span<const int> to, std::span<const InputInfo> inputs) const override {
    const std::optional<double> value = padding_value(inputs);
    if (!value || (*value == 0 && std::signbit(*value))) return std::nullopt;  // what the attribute cannot say
    const Integers old = pads(inputs);
    auto op = std::make_shared<Pad>(*this);
    op->value_ = *value;
    op->pads_ = Integers(old.size());
    for (std::size_t axis = 0; axis < to.size(); ++axis)
      for (const std::size_t side : {std::size_t{0}, to.size()})
        (*op->pads_)[static_cast<std::size_t>(to[axis]) + side] = old[axis + side];
    return PermutedOp{.op = std::move(op), .inputs = {{.number = 0}}};
  }
  bool gives_input_back(std::span<const InputInfo> inputs) const override {
    const Integers list = pads(inputs);  // equal shapes are not enough: one side may grow, one shrink
    return std::all_of(list.begin(), list.end(), [](std::int64_t count) { return count == 0; });
  }
  std::optional<Integers> added_zeros(std::span<const InputInfo> inputs) const override {
    const int rank = inputs[data_input].type.shape.rank();
    if (mode_ != PadMode::constant || padding_value(inputs) != 0 || rank < 3 || rank > 5) return std::nullopt;
    const Integers list = pads(inputs);
    Integers spatial;
    for (std::size_t i = 0; i < list.size(); ++i) {
      const bool in_image = i % static_cast<std::size_t>(rank) >= 2;
      if (list[i] < 0 || (!in_image && list[i] != 0)) return std::nullopt;
      if (in_image) spatial.push_back(list[i]);
    }
    return spatial;
  }

  std::string_view mode_name() const { return mode_names[static_cast<std::size_t>(mode_)]; }
  PadMode mode() const { return mode_; }

  /// Begins of all axes of the data, then ends; negative: elements cropped. Error(unsupported) when unknown.
  Integers pads(std::span<const InputInfo> inputs) const {
    const int rank = required_input(inputs, data_input, "data").shape.rank();
    std::span<const std::int64_t> list;
    if (pads_) {
      list = *pads_;
    } else {
      require_dtype("Pad: input pads", required_input(inputs, pads_input, "pads").dtype, {DType::i64});
      list = known_value(inputs, pads_input, "pads").values<std::int64_t>();
    }
    AxisInts axes;
    axes.size = rank;
    std::iota(axes.values.begin(), axes.values.end(), 0);
    if (present(inputs, axes_input)) axes = axis_ints(known_value(inputs, axes_input, "axes"), "axes");
    const auto count = static_cast<std::size_t>(axes.size), all = static_cast<std::size_t>(rank);
    if (list.size() != 2 * count)
      throw Error(ErrorKind::invalid_model,
                  fmt::format("Pad: {} pads for {} axes, expected {}", list.size(), count, 2 * count));
    (void)axis_mask(axes.span(), rank);  // throws outside or for repeated axes
    Integers pads(2 * all);
    for (std::size_t i = 0; i < count; ++i) {
      const auto axis = static_cast<std::size_t>(resolve_axis(axes.values[i], rank));
      pads[axis] = list[i];
      pads[axis + all] = list[i + count];
    }
    return pads;
  }

  /// The constant in the data's type, in the low bytes; nothing if the run computes it.
  std::optional<std::uint64_t> value_bits(std::span<const InputInfo> inputs) const {
    const DType dtype = inputs[data_input].type.dtype;
    std::uint64_t bits = 0;
    if (present(inputs, value_input)) {
      const Tensor* value = inputs[value_input].constant;
      if (value == nullptr) return std::nullopt;
      std::memcpy(&bits, value->data(), dtype_bytes(dtype));
    } else if (value_ != 0) {
      bits = dtype == DType::f64    ? std::bit_cast<std::uint64_t>(value_)
             : dtype == DType::f16  ? f16_from_f64(value_)
             : dtype == DType::bf16 ? bf16_from_f64(value_)
                                    : std::bit_cast<std::uint32_t>(static_cast<float>(value_));
    }
    return bits;
  }

 private:
  /// The constant if it is known and representable in the attribute: one of its types, or 0.
  std::optional<double> padding_value(std::span<const InputInfo> inputs) const {
    const auto bits = value_bits(inputs);
    if (!bits || *bits == 0) return bits ? std::optional<double>(0) : std::nullopt;
    const DType dtype = inputs[data_input].type.dtype;
    if (dtype == DType::f32) return std::bit_cast<float>(static_cast<std::uint32_t>(*bits));
    if (dtype == DType::f16) return f32_from_f16(static_cast<std::uint16_t>(*bits));
    if (dtype == DType::bf16) return f32_from_bf16(static_cast<std::uint16_t>(*bits));
    return dtype == DType::f64 ? std::optional<double>(std::bit_cast<double>(*bits)) : std::nullopt;
  }

  PadMode mode_ = PadMode::constant;
  std::optional<Integers> pads_;  ///< begins of all axes, then ends; of the attribute form
  double value_ = 0;              ///< of that form, too
};

std::unique_ptr<const BoundKernel> bind_pad(const Binding& binding) {
  const auto& op = binding.op<Pad>();
  const auto inputs = binding.problem.inputs();
  return std::make_unique<BoundPadding>(binding, op.mode(), op.pads(inputs), op.value_bits(inputs));
}

std::optional<std::string> refuse_cuda(const Problem& problem) {
  if (problem.as<Pad>().value_bits(problem.inputs())) return std::nullopt;
  return "the constant value is computed by the run";
}

constexpr SimpleKernel kernels[] = {
    {.formats = nchw_or_nhwc, .reads = input_bit(data_input), .bind = bind_pad},
    {.device = DeviceKind::cuda,
     .formats = nchw_or_nhwc,
     .reads = input_bit(data_input),
     .refuse = refuse_cuda,
     .bind = bind_pad},
};

}  // namespace

OpParts pad() { return {make_from<Pad>, kernels}; }

}  // namespace lenslet
