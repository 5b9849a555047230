// Arithmetic on two or more broadcast tensors: the kinds of binary_kinds.h, plus Sum, Mean and Pow.

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>

#include "base/convert.h"
#include "base/cuda_built.h"
#include "ops/core/checks.h"
#include "ops/core/row_kernel.h"
#include "ops/elementwise/binary_cuda.h"
#include "ops/elementwise/binary_kernels.h"
#include "ops/elementwise/brain_operand.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/types.h"
#include "ops/families.h"

namespace lenslet {

namespace {

struct Row {
  std::string_view name;
  BinaryKind kind;
  bool mean = false;              ///< the sum is divided by the number of inputs
  std::string_view variant = {};  ///< of an attribute, as it is spelled there
};
#define LENSLET_ROW(NAME, ...) {#NAME, BinaryKind::NAME},
constexpr Row table[] = {LENSLET_BINARY_KINDS(LENSLET_ROW){"Sum", BinaryKind::Add},
                         {"Mean", BinaryKind::Add, true},
                         {"Pow", BinaryKind::Pow},
                         {"Mod", BinaryKind::Mod, false, "0"},
                         {"Mod", BinaryKind::Fmod, false, "1"},
                         {"BitShift", BinaryKind::ShiftLeft, false, "LEFT"},
                         {"BitShift", BinaryKind::ShiftRight, false, "RIGHT"}};
#undef LENSLET_ROW

constexpr const char* by_zero = "integer division by zero";
[[noreturn]] void division_by_zero() { throw Error(ErrorKind::invalid_argument, by_zero); }

constexpr bool divides(BinaryKind kind) {
  return kind == BinaryKind::Div || kind == BinaryKind::Mod || kind == BinaryKind::Fmod;
}
/// Integers of one width share the function's bits, with a sign or without.
constexpr bool ignores_signs(BinaryKind kind) {
  return !divides(kind) && kind != BinaryKind::Max && kind != BinaryKind::Min && kind != BinaryKind::ShiftRight;
}

bool halves(DType dtype) { return dtypes<HalfTypes>.contains(dtype); }
bool whole(DType dtype) { return dtype != DType::f32 && dtype != DType::f64 && !halves(dtype); }

/// The constant as one value per channel (axis 1) of `y`; nothing if it varies otherwise or widens the shape.
std::vector<double> per_channel(const InputInfo& input, const Shape& y) {
  if (input.constant == nullptr || input.type.dtype != DType::f32) return {};
  const Shape& shape = input.type.shape;
  const int missing = y.rank() - shape.rank();
  if (missing < 0) return {};
  for (int axis = 0; axis < shape.rank(); ++axis)
    if (shape[axis] != 1 && axis + missing != 1) return {};
  const auto values = input.constant->values<float>();
  const auto channels = static_cast<std::size_t>(y[1]);
  if (values.size() == 1) return std::vector<double>(channels, double{values[0]});
  if (values.size() != channels) return {};
  return {values.begin(), values.end()};
}

/// y = fold of the kind over all inputs, NumPy broadcasting. Integers wrap around, Div truncates towards zero.
class BinaryOp final : public Op {
 public:
  explicit BinaryOp(const Row& r) : row(r) {}
  const Row& row;

  std::string_view type() const override { return row.name; }
  AttributeList attributes() const override {
    if (row.name == "Mod") return {{"fmod", std::int64_t{row.kind == BinaryKind::Fmod}}};
    if (row.name == "BitShift") return {{"direction", std::string(row.variant)}};
    return {};
  }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    TensorType y = required_input(inputs, 0, "A");
    if (row.kind == BinaryKind::Pow)
      require_dtype("input Y", required_input(inputs, 1, "Y").dtype,
                    {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i32, DType::i64, DType::u32, DType::u64});
    else
      require_equal_dtypes(inputs);
    for (std::size_t i = 1; i < inputs.size(); ++i)
      y.shape = broadcast_shapes(y.shape, required_input(inputs, i, "operand").shape);
    if (row.kind == BinaryKind::PRelu && !(y.shape == inputs[0].type.shape))
      throw Error(ErrorKind::invalid_model, fmt::format("slope {} does not broadcast to {}", inputs[1].type.shape.str(),
                                                        inputs[0].type.shape.str()));
    // Known divisors are checked here, so that a model with a constant zero divisor is refused at load.
    if (divides(row.kind) && whole(y.dtype) && inputs[1].constant != nullptr) {
      const Tensor& divisor = *inputs[1].constant;
      dispatch_bytes(dtype_bytes(divisor.dtype()), [&]<typename T>(std::type_identity<T>) {
        const auto* values = static_cast<const T*>(divisor.data());
        if (std::find(values, values + divisor.elems(), T{0}) != values + divisor.elems())
          throw Error(ErrorKind::invalid_model, "integer division by zero");
      });
    }
    return {y};
  }
  double flops(std::span<const InputInfo> inputs, std::span<const TensorType> outputs) const override {
    const double elems = static_cast<double>(outputs[0].shape.elems());
    return elems * (static_cast<double>(inputs.size()) - (row.mean ? 0 : 1));
  }
  std::size_t elementwise_inputs() const override { return any_number; }
  bool gives_input_back(std::span<const InputInfo> inputs) const override { return inputs.size() == 1; }

  std::optional<ChannelAffine> as_channel_affine(std::span<const InputInfo> inputs, std::size_t side,
                                                 const Shape& y) const override {
    const bool known = row.name == "Add" || row.name == "Sub" || row.name == "Mul" ||
                       (row.name == "Div" && side == 0);  // constant / x is not affine
    if (!known || y.rank() < 2 || !(inputs[side].type.shape == y)) return std::nullopt;
    const std::vector<double> c = per_channel(inputs[1 - side], y);
    if (c.empty()) return std::nullopt;
    ChannelAffine affine{std::vector<double>(c.size(), 1), std::vector<double>(c.size(), 0)};
    for (std::size_t k = 0; k < c.size(); ++k) {
      if (row.kind == BinaryKind::Mul) affine.factor[k] = c[k];
      if (row.kind == BinaryKind::Div) affine.factor[k] = 1 / c[k];
      if (row.kind == BinaryKind::Add) affine.offset[k] = c[k];
      if (row.kind == BinaryKind::Sub) {
        affine.factor[k] = side == 0 ? 1 : -1;
        affine.offset[k] = side == 0 ? -c[k] : c[k];
      }
    }
    return affine;
  }
};

void apply_binary(BinaryKind kind, const BrainOperand& a, const BrainOperand& b, BFloat16* y, std::int64_t y_row,
                  std::int64_t rows, std::int64_t n) {
  alignas(64) FloatPiece of_a, of_b, of_y;
  for_each_piece(rows, n, [&](std::int64_t row, std::int64_t here, std::int64_t first, std::int64_t count) {
    const BinaryOperand u = a.widened(row, here, first, count, of_a.data());
    const BinaryOperand v = b.widened(row, here, first, count, of_b.data());
    apply_binary(kind, u, v, of_y.data(), count, here, count);
    narrow_rows(of_y.data(), y + row * y_row + first, y_row, here, count);
  });
}

/// T: float or bfloat16.
template <typename T>
void run_floats(ThreadPool& pool, BinaryKind kind, const BroadcastLoops& loops, T* y, const T* a, const T* b) {
  using Operand = std::conditional_t<is_half<T>, BrainOperand, BinaryOperand>;
  const std::int64_t inner = loops.inner();
  if (loops.rank == 1 || inner > elementwise_grain)
    return for_each_run(loops, pool, elementwise_grain, [&](const auto& at, std::int64_t n) {
      apply_binary(kind, Operand{a + at[1], 0, loops.inner_stride(1)}, Operand{b + at[2], 0, loops.inner_stride(2)},
                   y + at[0], 0, 1, n);
    });
  // Short rows (a pixel's channels) are processed many at a time: one call each cost more than the work.
  BroadcastLoops rows = loops;
  --rows.rank;
  for_each_run(rows, pool, elementwise_grain / std::max<std::int64_t>(inner, 1), [&](const auto& at, std::int64_t n) {
    apply_binary(kind, Operand{a + at[1], rows.inner_stride(1), loops.inner_stride(1)},
                 Operand{b + at[2], rows.inner_stride(2), loops.inner_stride(2)}, y + at[0], rows.inner_stride(0), n,
                 inner);
  });
}

/// Rows of an nhwc image of floats: one operand has y's layout, the other too, or one number per channel. Nothing for
/// other operands.
class BinaryRows final : public RowKernel {
 public:
  static std::unique_ptr<const BinaryRows> of(const Binding& binding, BinaryKind kind) {
    const Shape& y = binding.output_shape();
    if (binding.problem.inputs().size() != 2 || y.rank() != 4 || binding.output_format() != formats::nhwc ||
        binding.device.kind != DeviceKind::cpu)
      return nullptr;
    for (const std::size_t input : {std::size_t{0}, std::size_t{1}}) {
      const InputInfo &x = binding.problem.inputs()[input], &other = binding.problem.inputs()[1 - input];
      if (!(x.type.shape == y) || x.constant != nullptr) continue;
      const bool alike = other.type.shape == y && other.constant == nullptr;
      if (alike || a_number_a_channel(other.type.shape, y))
        return std::unique_ptr<const BinaryRows>(new BinaryRows(kind, y, input, alike, other.type.shape));
    }
    return nullptr;
  }

  RowShape x_shape() const override { return y_shape(); }
  RowShape y_shape() const override { return {y_[0], y_[2], y_[3] * y_[1]}; }
  std::size_t row_input() const override { return input_; }
  Rows reads(Rows rows) const override { return rows; }
  void run_rows(const KernelRun& run, const ImageRows& rows) const override {
    const std::int64_t c = y_[1], first = rows.rows.begin;
    const BinaryOperand x{rows.x.at(first), c, 1};
    BinaryOperand other{run.in<float>(1 - input_), 0, 1};
    other.row = alike_ ? c : 0;
    other.at += alike_ ? (rows.image * y_[2] + first) * y_[3] * c : rows.image * image_floats_;
    apply_binary(kind_, input_ == 0 ? x : other, input_ == 0 ? other : x, rows.y.at(first), c,
                 rows.rows.count() * y_[3], c);
  }

 private:
  BinaryRows(BinaryKind kind, const Shape& y, std::size_t input, bool alike, const Shape& other)
      : kind_(kind), y_(y), input_(input), alike_(alike), image_floats_(other.rank() == 4 && other[0] > 1 ? y[1] : 0) {}

  static bool a_number_a_channel(const Shape& shape, const Shape& y) {
    const int missing = 4 - shape.rank();
    if (missing < 0 || missing > 1) return false;
    const auto dim = [&](int axis) { return axis < missing ? 1 : shape[axis - missing]; };
    return (dim(0) == 1 || dim(0) == y[0]) && dim(1) == y[1] && dim(2) == 1 && dim(3) == 1;
  }

  BinaryKind kind_;
  Shape y_;
  std::size_t input_;
  bool alike_;
  std::int64_t image_floats_;  ///< from one image's numbers to the next one's
};

// The CPU's integer functions: division by zero is reported.
template <typename F>
struct CheckedDivision {
  static constexpr bool slow = true;
  F divide;
  template <typename T>
  T operator()(T a, T b) const {
    if (b == 0) division_by_zero();
    return divide(a, b);
  }
};
template <typename T, typename E>
struct CheckedPow {
  T operator()(T base, E exponent) const {
    if constexpr (std::is_integral_v<T> && std::is_integral_v<E> && std::is_signed_v<E>)
      if (base == 0 && exponent < 0) division_by_zero();
    return Pow<T, E>()(base, exponent);
  }
};

/// Everything except Pow, from the first input to the last: each step is a pass over the output. Float16: CUDA only.
template <typename T>
class Fold final : public BoundKernel {
 public:
  explicit Fold(const Binding& binding) {
    const Row& row = binding.op<BinaryOp>().row;
    const int inputs = static_cast<int>(binding.problem.inputs().size());
    const bool cuda = binding.device.kind == DeviceKind::cuda;
    const auto step = [&](BinaryKind kind, int a, int b) { steps_.push_back({kind, a, b, loops_of(binding, {a, b})}); };
    if (inputs == 1) step(BinaryKind::Max, 0, 0);  // max(x, x): a copy in the output's format
    for (int i = 1; i < inputs; ++i) step(row.kind, i == 1 ? 0 : the_output, i);
    if (row.mean && inputs > 1) {
      count_ = static_cast<decltype(count_)>(inputs);
      if (!cuda) step(BinaryKind::Div, the_output, one_number);
    }
    if (std::is_integral_v<T> && divides(row.kind) && binding.constant(1) == nullptr) fault_ = by_zero;
    if (std::is_same_v<T, float> && !row.mean) rows_ = BinaryRows::of(binding, row.kind);
  }
  const RowKernel* row_kernel() const override { return rows_.get(); }
  std::string fault() const override { return fault_; }

  void run(const KernelRun& run) const override {
    auto* y = run.out<T>();
    const auto operand = [&](int number) -> const T* {
      if (number == the_output) return y;
      if constexpr (!is_half<T>)
        if (number == one_number) return &count_;
      return static_cast<const T*>(run.inputs[static_cast<std::size_t>(number)].data());
    };
    for (const Step& step : steps_) {
      const T *a = operand(step.a), *b = operand(step.b);
      if (run.cuda != nullptr) {
        if constexpr (cuda_built) {
          if (count_ != 0 && &step == &steps_.back())
            cuda::add_and_divide(*run.cuda, static_cast<int>(count_), dtype_of<T>::value, step.loops, a, b, y);
          else
            cuda::binary(*run.cuda, step.kind, dtype_of<T>::value, step.loops, a, b, y);
        }
      } else if constexpr (std::is_same_v<T, float> || std::is_same_v<T, BFloat16>) {
        run_floats(*run.pool, step.kind, step.loops, y, a, b);
      } else if constexpr (std::is_same_v<T, double>) {
        // Not vectorised: the loops by kind below would take the other of two NaN operands, so the result's sign would
        // change.
        transform(*run.pool, step.loops, Binary<T>{step.kind}, y, a, b);
      } else if constexpr (!is_half<T>) {
        with_binary<T>(step.kind, [&]<BinaryKind kind>(BinaryOf<kind, T> f) {
          if constexpr (divides(kind)) {
            transform(*run.pool, step.loops, CheckedDivision<decltype(f)>{f}, y, a, b);
          } else {
            using W = std::conditional_t<ignores_signs(kind), std::make_signed_t<T>, T>;
            const auto as = [](const T* x) { return reinterpret_cast<const W*>(x); };
            transform(*run.pool, step.loops, BinaryOf<kind, W>(), reinterpret_cast<W*>(y), as(a), as(b));
          }
        });
      }
    }
  }

 private:
  struct Step {
    BinaryKind kind;
    int a, b;
    BroadcastLoops loops;
  };
  std::vector<Step> steps_;
  std::conditional_t<is_half<T>, float, T> count_ = 0;  ///< a mean's divisor
  std::unique_ptr<const BinaryRows> rows_;
  std::string fault_;
};

class BoundPow final : public BoundKernel {
 public:
  explicit BoundPow(const Binding& binding)
      : base_(binding.problem.inputs()[0].type.dtype),
        exponent_(binding.problem.inputs()[1].type.dtype),
        loops_(loops_of(binding, {0, 1})) {
    // Nearly all powers are squares. The CPU checks this in apply_binary.
    const Tensor* exponent = binding.constant(1);
    if (binding.device.kind == DeviceKind::cuda && exponent != nullptr && exponent->elems() == 1 && is_two(*exponent))
      square_ = loops_of(binding, {0, 0});
  }
  std::string fault() const override { return whole(base_) && whole(exponent_) ? by_zero : ""; }

  void run(const KernelRun& run) const override {
    const void *a = run.inputs[0].data(), *b = run.inputs[1].data();
    void* y = run.outputs[0].data();
    if (run.cuda != nullptr) {
      if constexpr (cuda_built) {
        if (square_) return cuda::binary(*run.cuda, BinaryKind::Mul, base_, *square_, a, a, y);
        cuda::pow(*run.cuda, base_, exponent_, loops_, a, b, y);
      }
      return;
    }
    dispatch(base_, PowTypes(), [&]<typename T>(std::type_identity<T>) {
      dispatch(exponent_, ExponentTypes(), [&]<typename E>(std::type_identity<E>) {
        const auto* base = static_cast<const T*>(a);
        const auto* exponent = static_cast<const E*>(b);
        if constexpr (std::is_same_v<T, float> && std::is_same_v<E, float>)
          run_floats(*run.pool, BinaryKind::Pow, loops_, static_cast<T*>(y), base, exponent);
        else
          transform(*run.pool, loops_, CheckedPow<T, E>(), static_cast<T*>(y), base, exponent);
      });
    });
  }

 private:
  static bool is_two(const Tensor& exponent) {
    switch (exponent.dtype()) {
      case DType::f32:
        return exponent.values<float>()[0] == 2;
      case DType::f16:
        return static_cast<const Float16*>(exponent.data())->bits == f16_from_f32(2);
      case DType::bf16:
        return static_cast<const BFloat16*>(exponent.data())->bits == bf16_from_f32(2);
      default:
        return false;
    }
  }

  DType base_, exponent_;
  BroadcastLoops loops_;
  std::optional<BroadcastLoops> square_;
};

// Every pass rounds its 16-bit output; a mean on the CPU has one more. Powers of 16-bit types have exponents of the
// same type.
std::optional<std::string> refuse_halves(const Problem& problem) {
  const std::span<const InputInfo> inputs = problem.inputs();
  const BinaryKind kind = problem.as<BinaryOp>().row.kind;
  const DType a = inputs[0].type.dtype;
  if (kind == BinaryKind::Add && halves(a) && inputs.size() > 2)
    return fmt::format("{} sums are rounded once (supported: 2 inputs)", to_string(a));
  if (kind != BinaryKind::Pow) return std::nullopt;
  const DType b = inputs[1].type.dtype;
  if (a == b || !(halves(a) || halves(b))) return std::nullopt;
  return fmt::format("{} to a power of type {}", to_string(a), to_string(b));
}

// With more inputs, too, only the first two may be overwritten: later passes read the others.
constexpr auto kernels_for(DTypeSet types, decltype(SimpleKernel::bind) cpu, decltype(SimpleKernel::bind) cuda) {
  auto both = on_both({.types = types,
                       .more_on_cuda = types.contains(DType::f32) ? dtypes<HalfTypes> : DTypeSet(),
                       .formats = nchw_or_nhwc,
                       .tolerance = 2e-6,
                       .in_place = input_bit(0) | input_bit(1),
                       .refuse = refuse_halves},
                      cpu, cuda);
  both[1].pitched_inputs = all_inputs;  // it follows strides
  return both;
}
template <typename List>
constexpr auto fold_kernels = kernels_for(with_brain(dtypes<List>), bind_typed<Fold, WithBrain<List>>,
                                          bind_typed<Fold, WithHalves<List>>);
constexpr auto mean_kernels =
    kernels_for(dtypes<RealTypes>, bind_typed<Fold, RealTypes>, bind_typed<Fold, WithHalves<RealTypes>>);
constexpr auto pow_kernels = kernels_for(dtypes<PowTypes>, bind<BoundPow>, bind<BoundPow>);

std::shared_ptr<const Op> make(const NodeSpec& spec) {
  AttributeReader reader(spec);
  const std::string direction = spec.name == "BitShift" ? reader.text("direction", "") : std::string();
  std::string_view variant = direction;
  if (spec.name == "Mod")
    variant = reader.flag("fmod", false) ? "1" : "0";
  else if (spec.name != "BitShift" && spec.name != "PRelu")
    reader.ignore("consumed_inputs");
  // Broadcasting was another operation before opset 7: `axis` gave the second operand's position.
  for (const char* name : {"broadcast", "axis"})
    if (reader.has(name))
      throw Error(ErrorKind::unsupported,
                  fmt::format("attribute '{}' belongs to opset 6 and earlier: export with opset 7 or later", name));
  reader.finish();
  const Row* const row = std::find_if(std::begin(table), std::end(table),
                                      [&](const Row& r) { return r.name == spec.name && r.variant == variant; });
  if (row == std::end(table))
    throw Error(ErrorKind::invalid_model, fmt::format("attribute 'direction' is '{}'", variant));
  return std::make_shared<BinaryOp>(*row);
}

}  // namespace

std::span<const OpRow> binary_rows() {
#define LENSLET_ROW(NAME, VERSION, MOST, TYPES, NOTES, ...) \
  {#NAME, "", VERSION, MOST == 2 ? 2 : 1, MOST, 1, 1, {make, fold_kernels<TYPES>}, NOTES},
  static constexpr OpRow rows[] = {
      LENSLET_BINARY_KINDS(LENSLET_ROW){"Sum", "", 6, 1, any_number, 1, 1, {make, fold_kernels<RealTypes>}},
      {"Mean", "", 6, 1, any_number, 1, 1, {make, mean_kernels}},
      {"Pow", "", 7, 2, 2, 1, 1, {make, pow_kernels}, "exponents of the same types, uint32 or uint64, in any pair"},
      {"Mod", "", 10, 2, 2, 1, 1, {make, fold_kernels<NumberTypes>}},
      {"BitShift",
       "",
       11,
       2,
       2,
       1,
       1,
       {make, fold_kernels<IntegerTypes>},
       "no bit but copies of the sign is left of a shift by all of them, or by less than none"}};
#undef LENSLET_ROW
  return rows;
}

}  // namespace lenslet
