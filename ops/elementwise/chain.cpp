// ElementwiseChain: elementwise nodes that follow each other, as one step that reads x and each operand once and rounds
// once. Only the pass fuse_elementwise makes it.

#include "ops/elementwise/chain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "base/cuda_built.h"
#include "ops/core/by_floats.h"
#include "ops/core/checks.h"
#include "ops/core/row_kernel.h"
#include "ops/elementwise/binary_kernels.h"
#include "ops/elementwise/brain_operand.h"
#include "ops/elementwise/chain_cuda.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/types.h"
#include "ops/elementwise/unary_kernels.h"

namespace lenslet {

namespace {

using Kind = ChainFunction::Kind;

constexpr std::string_view kind_names[] = {
#define LENSLET_NAME(NAME) #NAME,
    "activation", "Square", "ScaleShift", LENSLET_CHAIN_UNARY(LENSLET_NAME) LENSLET_CHAIN_BINARY(LENSLET_NAME)
#undef LENSLET_NAME
};

std::string name_of(const ChainFunction& f) {
  return std::string(f.kind == Kind::activation ? to_string(f.activation)
                                                : kind_names[static_cast<std::size_t>(f.kind)]);
}

/// x, then the operands of the functions in their order, which broadcast to x; they have x's type, or float32 beside 16
/// bits.
class ChainOp final : public Op {
 public:
  /// Attributes, an entry for each function: `functions`, names with + between them, of an activation or a
  /// ChainFunction::Kind; `inputs`, `reversed`, `a` and `b` as in ChainFunction.
  explicit ChainOp(const NodeSpec& spec) {
    AttributeReader reader(spec);
    std::istringstream text(reader.text("functions", ""));
    std::vector<std::string> names;
    for (std::string name; std::getline(text, name, '+');) names.push_back(name);
    const auto inputs = reader.integers("inputs"), reversed = reader.integers("reversed");
    const auto a = reader.reals("a"), b = reader.reals("b");
    reader.finish();
    const std::size_t count = names.size();
    if (count == 0 || count > most_chain_functions || inputs.size() != count || reversed.size() != count ||
        a.size() != count || b.size() != count)
      throw Error(ErrorKind::invalid_model, fmt::format("{} functions, expected 1 to {} with an entry of each list",
                                                        count, most_chain_functions));
    for (std::size_t i = 0; i < count; ++i) {
      ChainFunction& f = chain.at[i];
      const auto* const found = std::find(std::begin(kind_names) + 1, std::end(kind_names), names[i]);
      if (found == std::end(kind_names))
        f.activation = parse_activation_kind(names[i]);
      else
        f.kind = static_cast<Kind>(found - std::begin(kind_names));
      f.a = static_cast<float>(a[i]);
      f.b = static_cast<float>(b[i]);
      f.reversed = reversed[i] != 0;
      const bool two = f.kind == Kind::ScaleShift;
      if (f.kind == Kind::activation && f.activation == Activation::Kind::none)
        throw Error(ErrorKind::invalid_model, "a function that does nothing");
      if (inputs[i] != (two ? 2 : is_binary(f.kind) && inputs[i] != 0 ? 1 : 0) || (f.reversed && !is_binary(f.kind)))
        throw Error(ErrorKind::invalid_model, fmt::format("function {} with {} inputs", names[i], inputs[i]));
      f.inputs = static_cast<std::uint8_t>(inputs[i]);
      operands += f.inputs;
    }
    chain.count = static_cast<int>(count);
    if (operands > most_chain_operands)
      throw Error(ErrorKind::invalid_model, fmt::format("{} operands, at most {}", operands, most_chain_operands));
  }
  Chain chain;
  std::size_t operands = 0;

  std::string_view type() const override { return "ElementwiseChain"; }
  std::span<const ChainFunction> functions() const { return {chain.at.data(), static_cast<std::size_t>(chain.count)}; }
  AttributeList attributes() const override {
    std::vector<std::int64_t> inputs, reversed;
    std::vector<double> a, b;
    for (const ChainFunction& f : functions()) {
      inputs.push_back(f.inputs);
      reversed.push_back(f.reversed ? 1 : 0);
      a.push_back(static_cast<double>(f.a));
      b.push_back(static_cast<double>(f.b));
    }
    return {{"functions", names()}, {"inputs", inputs}, {"reversed", reversed}, {"a", a}, {"b", b}};
  }
  std::string describe(std::span<const InputInfo>) const override { return names(); }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& x = required_input(inputs, 0, "X");
    if (inputs.size() != 1 + operands)
      throw Error(ErrorKind::invalid_model, fmt::format("{} inputs, expected {}", inputs.size(), 1 + operands));
    for (std::size_t i = 1; i < inputs.size(); ++i) {
      const TensorType& operand = required_input(inputs, i, "operand");
      if (operand.dtype != x.dtype && !(operand.dtype == DType::f32 && dtypes<HalfTypes>.contains(x.dtype)))
        throw Error(ErrorKind::invalid_model,
                    fmt::format("operand {} of type {} beside {}", i, to_string(operand.dtype), to_string(x.dtype)));
      if (!(broadcast_shapes(x.shape, operand.shape) == x.shape))
        throw Error(ErrorKind::invalid_model,
                    fmt::format("operand {} does not broadcast to {}", operand.shape.str(), x.shape.str()));
    }
    return {x};
  }
  double flops(std::span<const InputInfo>, std::span<const TensorType> outputs) const override {
    return static_cast<double>(chain.count) * static_cast<double>(outputs[0].shape.elems());
  }
  std::size_t elementwise_inputs() const override { return any_number; }

 private:
  std::string names() const {
    std::string all;
    for (const ChainFunction& f : functions()) all.append(all.empty() ? "" : "+").append(name_of(f));
    return all;
  }
};

/// The operator of one input for a function of v alone, but for Clip.
UnaryFunction unary_of(const ChainFunction& f) {
  const bool by_tanh = f.kind == Kind::activation && f.activation == Activation::Kind::gelu_tanh;
  if (by_tanh) return {UnaryKind::Gelu, 1, 0};  // of its words the second
  const std::string_view name = kind_names[static_cast<std::size_t>(f.kind)];
  const auto* const row = std::find_if(std::begin(unary_table), std::end(unary_table), [&](const UnaryRow& r) {
    return f.kind == Kind::activation ? r.activation == f.activation : r.name == name;
  });
  assert(row != std::end(unary_table));
  const bool word = !row->parameters[0].words[0].empty();  // Gelu's `approximate`: the first
  return {static_cast<UnaryKind>(row - std::begin(unary_table)), word ? 0 : f.a, f.b};
}

BinaryKind binary_of(Kind kind) {
  switch (kind) {
#define LENSLET_CASE(NAME) \
  case Kind::NAME:         \
    return BinaryKind::NAME;
    LENSLET_CHAIN_BINARY(LENSLET_CASE)
#undef LENSLET_CASE
    default:
      return BinaryKind::Mul;  // Square
  }
}

BroadcastLoops loops_of_all(const Binding& binding) {
  std::vector<BroadcastLoops::Operand> all{{&binding.output_shape(), binding.output_format()}};
  for (std::size_t i = 0; i < binding.problem.inputs().size(); ++i)
    all.push_back({&binding.shape(i), binding.format(i)});
  return {binding.output_shape(), binding.output_format(), all};
}

/// Rows of operands: element i of row r is at[r * row + i * stride], of type float or of the chain's.
struct ChainRows {
  const std::byte* at = nullptr;
  bool floats = true;
  std::int64_t row = 0, stride = 0;

  void advance(std::int64_t elems) {
    at += elems * static_cast<std::int64_t>(floats ? sizeof(float) : sizeof(BFloat16));
  }
};
using AllRows = std::array<ChainRows, most_chain_operands>;

/// The CPU kernel: pieces that L1 holds go through the kernels of the single functions. T: float or bfloat16.
template <typename T>
class BoundChain final : public BoundKernel, private RowKernel {
 public:
  explicit BoundChain(const Binding& binding)
      : chain_(binding.op<ChainOp>().chain), operands_(binding.op<ChainOp>().operands), loops_(loops_of_all(binding)) {
    for (std::size_t i = 0; i < operands_; ++i) floats_[i] = binding.problem.inputs()[i + 1].type.dtype == DType::f32;
    for (std::size_t i = 0; i < static_cast<std::size_t>(chain_.count); ++i)
      if (const ChainFunction& f = chain_.at[i]; f.kind == Kind::activation ? !is_clip(f) : is_unary(f.kind))
        unary_[i] = unary_of(f);
    find_rows(binding);
  }
  const RowKernel* row_kernel() const override { return by_rows_ ? this : nullptr; }

  void run(const KernelRun& run) const override {
    const T* x = run.in<T>(0);
    T* y = run.out<T>();
    const std::int64_t inner = loops_.inner();
    const bool long_rows = loops_.rank == 1 || inner > floats_at_once;
    // Short rows (a pixel's channels) are processed many at a time.
    BroadcastLoops rows = loops_;
    if (!long_rows) --rows.rank;
    const std::int64_t grain = long_rows ? elementwise_grain : elementwise_grain / std::max<std::int64_t>(1, inner);
    for_each_run(rows, *run.pool, grain, [&](const auto& at, std::int64_t n) {
      AllRows operands;
      for (std::size_t i = 0; i < operands_; ++i) {
        const int operand = static_cast<int>(i) + 2;
        operands[i] = {static_cast<const std::byte*>(run.inputs[i + 1].data()), floats_[i],
                       long_rows ? 0 : rows.inner_stride(operand), loops_.inner_stride(operand)};
        operands[i].advance(at[i + 2]);
      }
      compute(x + at[1], operands, y + at[0], long_rows ? 1 : n, long_rows ? n : inner);
    });
  }

 private:
  static bool is_clip(const ChainFunction& f) {
    return f.kind == Kind::activation && f.activation == Activation::Kind::clip;
  }

  /// Dense rows of n elements.
  void compute(const T* x, AllRows operands, T* y, std::int64_t rows, std::int64_t n) const {
    if (n > floats_at_once) {
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t first = 0; first < n; first += floats_at_once) {
          AllRows here = operands;
          for (ChainRows& each : here) each.advance(r * each.row + first * each.stride);
          compute_piece(x + r * n + first, here, y + r * n + first, 1, std::min(floats_at_once, n - first));
        }
      return;
    }
    const std::int64_t most = floats_at_once / std::max<std::int64_t>(1, n);
    for (std::int64_t r = 0; r < rows; r += most) {
      compute_piece(x + r * n, operands, y + r * n, std::min(most, rows - r), n);
      for (ChainRows& each : operands) each.advance(most * each.row);
    }
  }

  /// At most floats_at_once elements.
  void compute_piece(const T* x, const AllRows& operands, T* y, std::int64_t rows, std::int64_t n) const {
    constexpr bool single = std::is_same_v<T, float>;
    alignas(64) FloatPiece values;
    const std::int64_t count = rows * n;
    const float* v = nullptr;
    if constexpr (single)
      v = x;
    else
      widen(x, values.data(), count), v = values.data();
    std::size_t next = 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(chain_.count); ++i) {
      const ChainFunction& f = chain_.at[i];
      float* to = values.data();
      if constexpr (single)
        if (i + 1 == static_cast<std::size_t>(chain_.count)) to = y;  // y may be an operand: not before the last one
      if (f.kind == Kind::ScaleShift) {
        scale_shift(v, operands[next], operands[next + 1], to, rows, n);
      } else if (is_clip(f)) {
        apply_clip(f.a, f.b, v, to, count);
      } else if (f.kind == Kind::Square) {
        apply_binary(BinaryKind::Mul, {v}, {v}, to, 0, 1, count);
      } else if (!is_binary(f.kind)) {
        apply_unary(unary_[i], v, to, count);
      } else {
        alignas(64) FloatPiece widened;
        BinaryOperand other{&f.a, 0, 0};
        if (f.inputs != 0) other = of(operands[next], rows, n, widened.data());
        // One row where the operand allows it: a call for many short ones costs more.
        const bool flat = (other.row == 0 && other.stride == 0) || (other.row == n && other.stride == 1);
        const BinaryOperand own{v, n, 1};
        apply_binary(binary_of(f.kind), f.reversed ? other : own, f.reversed ? own : other, to, n, flat ? 1 : rows,
                     flat ? count : n);
      }
      next += f.inputs;
      v = to;
    }
    if constexpr (!single) narrow(v, y, count);
  }

  /// The operand as floats, in `to` if they are not yet.
  static BinaryOperand of(const ChainRows& operand, std::int64_t rows, std::int64_t n, float* to) {
    if (operand.floats) return {reinterpret_cast<const float*>(operand.at), operand.row, operand.stride};
    const BrainOperand brain{reinterpret_cast<const BFloat16*>(operand.at), operand.row, operand.stride};
    return brain.widened(0, rows, 0, n, to);
  }

  /// One call where scale and shift are those of all rows.
  static void scale_shift(const float* v, const ChainRows& scale, const ChainRows& shift, float* to, std::int64_t rows,
                          std::int64_t n) {
    alignas(64) FloatPiece scales, shifts;
    BinaryOperand s = of(scale, rows, n, scales.data()), t = of(shift, rows, n, shifts.data());
    if (s.stride != t.stride || s.stride > 1) {  // other than numbers for each channel
      alignas(64) FloatPiece all_scales, all_shifts;
      const auto spread = [&](BinaryOperand& from, float* into) {
        for (std::int64_t r = 0; r < rows; ++r)
          for (std::int64_t i = 0; i < n; ++i) into[r * n + i] = from.at[r * from.row + i * from.stride];
        from = {into, n, 1};
      };
      spread(s, all_scales.data()), spread(t, all_shifts.data());
      return scale_shift_rows(v, s, t, to, rows, n);
    }
    scale_shift_rows(v, s, t, to, rows, n);
  }
  static void scale_shift_rows(const float* v, const BinaryOperand& s, const BinaryOperand& t, float* to,
                               std::int64_t rows, std::int64_t n) {
    const std::int64_t at_once = s.row == 0 && t.row == 0 ? rows : 1;
    for (std::int64_t r = 0; r < rows; r += at_once)
      apply_scale_shift(v + r * n, n, s.at + r * s.row, t.at + r * t.row, s.stride, {}, to + r * n, at_once, n);
  }

  RowShape x_shape() const override { return y_shape(); }
  RowShape y_shape() const override { return {y_[0], y_[2], y_[3] * y_[1]}; }
  Rows reads(Rows rows) const override { return rows; }
  void run_rows(const KernelRun& run, const ImageRows& rows) const override {
    if constexpr (std::is_same_v<T, float>) {
      const std::int64_t first = rows.rows.begin;
      AllRows operands;
      for (std::size_t i = 0; i < operands_; ++i) {
        operands[i] = {static_cast<const std::byte*>(run.inputs[i + 1].data()), true, pixel_[i], channel_[i]};
        operands[i].advance(rows.image * image_[i] + first * y_[3] * pixel_[i]);
      }
      compute(rows.x.at(first), operands, rows.y.at(first), rows.rows.count() * y_[3], y_[1]);
    }
  }
  /// Whether rows of an nhwc image can be computed, and the operands' strides for that.
  void find_rows(const Binding& binding) {
    y_ = binding.output_shape();
    by_rows_ = std::is_same_v<T, float> && y_.rank() == 4 && binding.output_format() == formats::nhwc &&
               binding.constant(0) == nullptr;
    for (std::size_t i = 0; by_rows_ && i < operands_; ++i) {
      const Shape& shape = binding.shape(i + 1);
      const auto own = element_strides(shape, binding.format(i + 1));
      const auto stride = [&](int axis) {
        const int at = axis - (4 - shape.rank());
        return at < 0 || shape[at] == 1 ? 0 : own[static_cast<std::size_t>(at)];
      };
      image_[i] = stride(0), channel_[i] = stride(1);
      pixel_[i] = y_[3] == 1 ? stride(2) : stride(3);
      by_rows_ = y_[2] == 1 || stride(2) == y_[3] * pixel_[i];
    }
  }

  Chain chain_;
  std::array<UnaryFunction, most_chain_functions> unary_{};
  std::size_t operands_;
  std::array<bool, most_chain_operands> floats_{};
  BroadcastLoops loops_;
  Shape y_;
  bool by_rows_ = false;
  std::array<std::int64_t, most_chain_operands> image_{}, pixel_{}, channel_{};
};

std::unique_ptr<const BoundKernel> bind_cuda(const Binding& binding) {
  std::uint32_t floats = 0;
  for (std::size_t i = 1; i < binding.problem.inputs().size(); ++i)
    if (binding.problem.inputs()[i].type.dtype == DType::f32) floats |= 1U << (i - 1);
  return bound([=, loops = loops_of_all(binding), chain = binding.op<ChainOp>().chain](const KernelRun& run) {
    if constexpr (cuda_built) {
      std::array<const void*, 1 + most_chain_operands> inputs{};
      for (std::size_t i = 0; i < run.inputs.size(); ++i) inputs[i] = run.inputs[i].data();
      cuda::chain(*run.cuda, chain, run.inputs[0].dtype(), loops, std::span(inputs).first(run.inputs.size()), floats,
                  run.outputs[0].data());
    }
  });
}

/// Each function rounds, as the operators do.
double tolerance_for(const Problem& problem) { return 2e-6 * problem.as<ChainOp>().chain.count; }

constexpr auto kernels = [] {
  auto both = on_both({.types = with_brain(dtypes<FloatTypes>),
                       .more_on_cuda = dtypes<HalfTypes>,
                       .formats_for = formats_of_x,
                       .tolerance_for = tolerance_for,
                       .in_place = all_inputs},
                      bind_typed<BoundChain, WithBrain<FloatTypes>>, bind_cuda);
  both[1].pitched_inputs = all_inputs;  // it follows strides
  return both;
}();

}  // namespace

OpParts elementwise_chain() { return {make_from<ChainOp>, kernels}; }

}  // namespace lenslet
