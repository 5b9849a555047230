// QuantizeLinear and DequantizeLinear, per tensor, per axis or per block: between float32 and integers of 2 to 16 bits
// or floats of 4 and 8.

#include "ops/elementwise/quantize.h"

#include <fmt/format.h>

#include "base/cuda_built.h"
#include "ops/core/checks.h"
#include "ops/core/onnx_types.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/quantize_cuda.h"
#include "ops/elementwise/quantize_kernels.h"

namespace lenslet {

namespace {

/// Inputs: x, scale (a scalar, or [D] of the axis; with blocks x's shape with the number of blocks along the axis),
/// zero_point (scale's shape; default 0).
class LinearOp : public Op {
 public:
  std::int64_t axis = 1;
  std::int64_t block = 0;  ///< elements of the axis that share a scale; 0: no blocks

  AttributeList attributes() const override {
    AttributeList list{{"axis", axis}};
    if (block != 0) list.emplace_back("block_size", block);
    return list;
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape& y) const override {
    if (block != 0) return std::nullopt;
    return axes_kept_if(inputs.size(), y.rank(), [](int) { return true; });
  }
  std::optional<PermutedOp> permuted(std::span<const int> to, std::span<const InputInfo> inputs) const override {
    const int rank = inputs[0].type.shape.rank();
    if (block != 0 || rank != static_cast<int>(to.size())) return std::nullopt;
    PermutedOp moved;
    for (std::size_t i = 0; i < inputs.size(); ++i) moved.inputs.push_back({.number = i, .permuted = i == 0});
    if (inputs[1].type.shape.elems() == 1) return moved;  // one for all elements
    const std::int64_t along = to[static_cast<std::size_t>(resolve_axis(axis, rank))];
    moved.op = with_attributes(*this, {{"axis", along}}, inputs.size());
    return moved;
  }
  double flops(std::span<const InputInfo>, std::span<const TensorType> outputs) const override {
    return 2 * static_cast<double>(outputs[0].shape.elems());
  }

 protected:
  void check_parameters(std::span<const InputInfo> inputs) const {
    const Shape& x = required_input(inputs, 0, "x").shape;
    const TensorType& scale = required_input(inputs, 1, "scale");
    require_dtype("input scale", scale.dtype, {DType::f32, DType::f16, DType::bf16});
    if (block != 0)
      check_blocks(x, scale.shape);
    else if (scale.shape.elems() != 1 || scale.shape.rank() > 1)
      require_shape("input scale", scale.shape, Shape{x[resolve_axis(axis, x.rank())]});
    if (!present(inputs, 2)) return;
    const Shape& zero_point = inputs[2].type.shape;  // for one value, ONNX's own cases mix a scalar and [1]
    if (scale.shape.elems() != 1 || scale.shape.rank() > 1 || zero_point.elems() != 1 || zero_point.rank() > 1)
      require_shape("input zero_point", zero_point, scale.shape);
  }

 private:
  void check_blocks(const Shape& x, const Shape& scale) const {
    const int blocked = resolve_axis(axis, x.rank());
    const std::int64_t size = x[blocked];
    if (block < 0) throw Error(ErrorKind::invalid_model, fmt::format("attribute 'block_size' is {}", block));
    require_shape("input scale", scale, x.with(blocked, size / block + (size % block == 0 ? 0 : 1)));
    if (size % block != 0)
      throw Error(ErrorKind::unsupported,
                  fmt::format("an axis of {} in blocks of {}: the last one is cut", size, block));
    if (x.rank() == Shape::max_rank)
      throw Error(ErrorKind::unsupported, fmt::format("blocks of {}, of so many axes", x.str()));
  }
};

class QuantizeOp final : public LinearOp {
 public:
  DType to = DType::u8;  ///< without a zero point
  SmallRounding rounding;

  std::string_view type() const override { return "QuantizeLinear"; }
  AttributeList attributes() const override {
    AttributeList list = LinearOp::attributes();
    list.emplace_back("output_dtype", dtype_to_onnx(to));
    if (!rounding.saturate) list.emplace_back("saturate", std::int64_t{0});
    return list;
  }
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    check_parameters(inputs);
    const DType dtype = present(inputs, 2) ? inputs[2].type.dtype : to;
    if (dtype == DType::f8e8m0 || (small_type(dtype) == nullptr && !dtypes<QuantizedTypes>.contains(dtype)))
      throw Error(ErrorKind::unsupported, fmt::format("the output has element type {}", to_string(dtype)));
    return {{dtype, inputs[0].type.shape}};
  }
};

class DequantizeOp final : public LinearOp {
 public:
  std::optional<DType> to;  ///< nothing: the scale's type

  std::string_view type() const override { return "DequantizeLinear"; }
  AttributeList attributes() const override {
    AttributeList list = LinearOp::attributes();
    if (to) list.emplace_back("output_dtype", dtype_to_onnx(*to));
    return list;
  }
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    check_parameters(inputs);
    if (present(inputs, 2) && inputs[2].type.dtype != inputs[0].type.dtype)
      throw Error(ErrorKind::invalid_model,
                  fmt::format("input zero_point is {}, but input x is {}", to_string(inputs[2].type.dtype),
                              to_string(inputs[0].type.dtype)));
    return {{to.value_or(inputs[1].type.dtype), inputs[0].type.shape}};
  }
};

/// Kernels take float32 scales and give float32; a file's 16-bit ones have been widened.
std::optional<std::string> refuse_other_floats(const Problem& problem) {
  if (problem.inputs()[1].type.dtype != DType::f32)
    return fmt::format("input scale is {}", to_string(problem.inputs()[1].type.dtype));
  if (dtypes<HalfTypes>.contains(problem.outputs()[0].dtype))
    return fmt::format("the output is {}", to_string(problem.outputs()[0].dtype));
  return std::nullopt;
}

/// y, x, scale and, if there is one, the zero point.
BroadcastLoops linear_loops(const Binding& binding) {
  const auto& op = static_cast<const LinearOp&>(binding.problem.op());
  const bool zero_point = present(binding.problem.inputs(), 2);
  Shape x = binding.shape(0), along;
  if (op.block != 0) {  // splits the axis into blocks and their elements
    const int axis = resolve_axis(op.axis, x.rank());
    std::vector<std::int64_t> dims(x.dims().begin(), x.dims().end());
    dims[static_cast<std::size_t>(axis)] /= op.block;
    dims.insert(dims.begin() + axis + 1, op.block);
    x = Shape(dims);
    along = x.with(axis + 1, 1);
  } else if (binding.shape(1).elems() != 1) {
    const int axis = resolve_axis(op.axis, x.rank());
    along = x;
    for (int d = 0; d < x.rank(); ++d)
      if (d != axis) along = along.with(d, 1);
  }
  const Format format = binding.format(0);
  const BroadcastLoops::Operand operands[] = {{&x, format}, {&x, format}, {&along}, {&along}};
  return {x, format, std::span(operands).first(zero_point ? 4 : 3)};
}

template <typename F, typename Y, typename X, typename Z>
void run_cpu(const KernelRun& run, const BroadcastLoops& loops, const F& f, Y* y, const X* x, const Z* zero_point) {
  if (zero_point != nullptr)
    transform(*run.pool, loops, f, y, x, run.in<float>(1), zero_point);
  else
    transform(*run.pool, loops, f, y, x, run.in<float>(1));
}

const void* zero_point_of(const KernelRun& run) { return present(run.inputs, 2) ? run.inputs[2].data() : nullptr; }

std::unique_ptr<const BoundKernel> bind_quantize(const Binding& binding) {
  return bound([loops = linear_loops(binding), rounding = binding.op<QuantizeOp>().rounding](const KernelRun& run) {
    const DType to = run.outputs[0].dtype();
    const void* const zero_point = zero_point_of(run);
    if (run.cuda == nullptr) {
      with_quantize(to, rounding, [&]<typename F, typename T>(const F& f, T) {
        const auto* const zero_points = static_cast<const T*>(zero_point);
        if constexpr (std::is_same_v<F, Quantize<T>>)
          if (loops.inner_stride(2) == 0)
            return for_each_run(loops, *run.pool, elementwise_grain, [&](const auto& at, std::int64_t n) {
              const T zero = zero_points != nullptr ? zero_points[at[3]] : T{0};
              quantize_run(run.in<float>(0) + at[1], run.in<float>(1)[at[2]], zero, n, run.out<T>() + at[0]);
            });
        run_cpu(run, loops, f, run.out<T>(), run.in<float>(0), zero_points);
      });
    } else if constexpr (cuda_built) {
      cuda::quantize(*run.cuda, to, rounding, loops, run.in<float>(0), run.in<float>(1), zero_point,
                     run.outputs[0].data());
    }
  });
}

std::unique_ptr<const BoundKernel> bind_dequantize(const Binding& binding) {
  return bound([loops = linear_loops(binding)](const KernelRun& run) {
    const DType from = run.inputs[0].dtype();
    const void* const zero_point = zero_point_of(run);
    if (run.cuda == nullptr) {
      with_dequantize(from, [&]<typename T>(const auto& f, T) {
        run_cpu(run, loops, f, run.out<float>(), run.in<T>(0), static_cast<const T*>(zero_point));
      });
    } else if constexpr (cuda_built) {
      cuda::dequantize(*run.cuda, from, loops, run.inputs[0].data(), run.in<float>(1), zero_point, run.out<float>());
    }
  });
}

std::span<const Format> formats_of_linear(const Problem& problem) {
  return static_cast<const LinearOp&>(problem.op()).block != 0 ? std::span<const Format>(nchw_only)
                                                               : std::span<const Format>(nchw_or_nhwc);
}

constexpr DTypeSet dequantized_types() {
  DTypeSet types = dtypes<DequantizedTypes>;
  for (const DType small : {DType::f8e4m3fn, DType::f8e4m3fnuz, DType::f8e5m2, DType::f8e5m2fnuz, DType::f4e2m1,
                            DType::i4, DType::u4, DType::i2, DType::u2})
    types = types.with(small);
  return types;
}

constexpr auto quantize_kernels =
    on_both({.types = dtypes<Types<float>>, .formats_for = formats_of_linear, .refuse = refuse_other_floats},
            bind_quantize, bind_quantize);
constexpr auto dequantize_kernels = on_both(
    {.types = dequantized_types(), .formats_for = formats_of_linear, .tolerance = 2e-6, .refuse = refuse_other_floats},
    bind_dequantize, bind_dequantize);

// There is no axis before opset 13: the parameters are scalars.
template <typename LinearOp>
std::shared_ptr<LinearOp> make_common(const NodeSpec& spec, AttributeReader& reader) {
  auto op = std::make_shared<LinearOp>();
  if (!spec.before(13)) op->axis = reader.integer("axis", 1);
  if (!spec.before(21)) op->block = reader.integer("block_size", 0);
  return op;
}

std::shared_ptr<const Op> make_quantize(const NodeSpec& spec) {
  AttributeReader reader(spec);
  auto op = make_common<QuantizeOp>(spec, reader);
  if (!spec.before(19)) op->rounding.saturate = reader.flag("saturate", true);
  if (const std::int64_t to = reader.integer("output_dtype", 0); to != 0) op->to = dtype_from_onnx(to);
  // The division's precision: float32, or the scale's type, which has been widened to float32.
  if (const std::int64_t precision = reader.integer("precision", 0);
      precision != 0 && dtype_from_onnx(precision) != DType::f32)
    throw Error(ErrorKind::unsupported,
                fmt::format("attribute 'precision' is {}: float32 is done", to_string(dtype_from_onnx(precision))));
  reader.finish();
  return op;
}

std::shared_ptr<const Op> make_dequantize(const NodeSpec& spec) {
  AttributeReader reader(spec);
  auto op = make_common<DequantizeOp>(spec, reader);
  if (!spec.before(19)) reader.ignore("saturate");
  if (const std::int64_t to = reader.integer("output_dtype", 0); to != 0) {
    op->to = dtype_from_onnx(to);
    if (!dtypes<Types<float, Float16, BFloat16>>.contains(*op->to))
      throw Error(ErrorKind::unsupported,
                  fmt::format("attribute 'output_dtype' is {}: float32 is done", to_string(*op->to)));
  }
  reader.finish();
  return op;
}

}  // namespace

OpParts quantize_linear() { return {make_quantize, quantize_kernels}; }
OpParts dequantize_linear() { return {make_dequantize, dequantize_kernels}; }

}  // namespace lenslet
