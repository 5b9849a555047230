// Matrices that keep some diagonals, zero elsewhere: Trilu (all from one on, or up to one) and EyeLike (one of ones).

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/convert.h"
#include "base/cuda_built.h"
#include "ops/core/checks.h"
#include "ops/core/grain.h"
#include "ops/core/kernel.h"
#include "ops/core/onnx_types.h"
#include "ops/core/shape_args.h"
#include "ops/movement/diagonals_cuda.h"

namespace lenslet {

namespace {

/// Diagonals by column minus row, and their elements: input 0's, or `value` if it makes them.
struct Diagonals {
  std::int64_t least = std::numeric_limits<std::int64_t>::min(), most = std::numeric_limits<std::int64_t>::max();
  bool makes = false;
  std::uint64_t value = 0;
};

class DiagonalsOp : public Op {
 public:
  virtual Diagonals diagonals(std::span<const InputInfo> inputs) const = 0;
};

class Trilu final : public DiagonalsOp {
 public:
  explicit Trilu(const NodeSpec& spec) {
    AttributeReader reader(spec);
    upper_ = reader.flag("upper", true);
    reader.finish();
  }

  std::string_view type() const override { return "Trilu"; }
  AttributeList attributes() const override { return {{"upper", std::int64_t{upper_}}}; }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& x = required_input(inputs, 0, "input");
    require_rank("input", x.shape, 2, Shape::max_rank);
    (void)diagonals(inputs);
    return {x};
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape& y) const override {
    return axes_kept_if(inputs.size(), y.rank() - 2, [](int) { return true; });
  }

  Diagonals diagonals(std::span<const InputInfo> inputs) const override {
    const auto ints = constant_axis_ints(inputs, 1, "k");
    if (ints && ints->size != 1)
      throw Error(ErrorKind::invalid_model, fmt::format("k has {} elements, expected one", ints->size));
    const std::int64_t k = ints ? (*ints)[0] : 0;
    Diagonals diagonals;
    (upper_ ? diagonals.least : diagonals.most) = k;
    return diagonals;
  }

 private:
  bool upper_ = true;
};

class EyeLike final : public DiagonalsOp {
 public:
  explicit EyeLike(const NodeSpec& spec) {
    AttributeReader reader(spec);
    k_ = reader.integer("k", 0);
    if (reader.has("dtype")) dtype_ = dtype_from_onnx(reader.required_integer("dtype"));
    reader.finish();
  }

  std::string_view type() const override { return "EyeLike"; }
  AttributeList attributes() const override {
    AttributeList list{{"k", k_}};
    if (dtype_) list.emplace_back("dtype", dtype_to_onnx(*dtype_));
    return list;
  }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& x = required_input(inputs, 0, "input");
    require_rank("input", x.shape, 2, 2);
    return {{dtype_.value_or(x.dtype), x.shape}};
  }
  bool reads_only_types() const override { return true; }

  Diagonals diagonals(std::span<const InputInfo> inputs) const override {
    Diagonals diagonals{.least = k_, .most = k_, .makes = true};
    const float one = 1;
    convert_elements(DType::f32, &one, dtype_.value_or(inputs[0].type.dtype), &diagonals.value, 1);
    return diagonals;
  }

 private:
  std::int64_t k_ = 0;
  std::optional<DType> dtype_;
};

/// y [count, rows, cols].
struct Matrices {
  std::int64_t count = 1, rows = 1, cols = 1;

  explicit Matrices(const Shape& y) : rows(y[y.rank() - 2]), cols(y[y.rank() - 1]) {
    for (int i = 0; i + 2 < y.rank(); ++i) count *= y[i];
  }
};

std::unique_ptr<const BoundKernel> bind_cpu(const Binding& binding) {
  return bound([m = Matrices(binding.output_shape()),
                diagonals = binding.op<DiagonalsOp>().diagonals(binding.problem.inputs())](const KernelRun& run) {
    if (m.cols == 0) return;
    dispatch_bytes(dtype_bytes(run.outputs[0].dtype()), [&]<typename T>(std::type_identity<T>) {
      const T* from = run.in<T>(0);
      T* to = run.out<T>();
      run.pool->parallel_for(m.count * m.rows, std::max<std::int64_t>(1, elementwise_grain / m.cols),
                             [&](std::int64_t begin, std::int64_t end, int) {
                               for (std::int64_t line = begin; line < end; ++line) {
                                 // Columns [first, last) of this row are kept; compared before adding, which might
                                 // overflow.
                                 const std::int64_t row = line % m.rows;
                                 const std::int64_t first = diagonals.least < -row           ? 0
                                                            : diagonals.least > m.cols - row ? m.cols
                                                                                             : diagonals.least + row;
                                 const std::int64_t last = diagonals.most < -row            ? 0
                                                           : diagonals.most >= m.cols - row ? m.cols
                                                                                            : diagonals.most + row + 1;
                                 T* y = to + line * m.cols;
                                 std::fill(y, y + first, T{0});
                                 if (first < last && diagonals.makes)
                                   std::fill(y + first, y + last, static_cast<T>(diagonals.value));
                                 if (first < last && !diagonals.makes && y != from + line * m.cols)
                                   std::copy(from + line * m.cols + first, from + line * m.cols + last, y + first);
                                 std::fill(y + std::max(first, last), y + m.cols, T{0});
                               }
                             });
    });
  });
}

std::unique_ptr<const BoundKernel> bind_cuda(const Binding& binding) {
  return bound([m = Matrices(binding.output_shape()),
                diagonals = binding.op<DiagonalsOp>().diagonals(binding.problem.inputs())](const KernelRun& run) {
    if constexpr (cuda_built)
      cuda::diagonals(*run.cuda, dtype_bytes(run.outputs[0].dtype()), m.count, m.rows, m.cols, diagonals.least,
                      diagonals.most, diagonals.makes ? nullptr : run.inputs[0].data(), diagonals.value,
                      run.outputs[0].data());
  });
}

constexpr auto trilu_kernels = on_both({.in_place = input_bit(0), .reads = input_bit(0)}, bind_cpu, bind_cuda);
constexpr auto eye_like_kernels = on_both({.reads = no_inputs}, bind_cpu, bind_cuda);

}  // namespace

OpParts trilu() { return {make_from<Trilu>, trilu_kernels}; }
OpParts eye_like() { return {make_from<EyeLike>, eye_like_kernels}; }

}  // namespace lenslet
