// LayerNormalization: normalises rows, all axes from one on, to mean 0 and variance 1, then applies an elementwise
// factor and offset. RMSNormalization: to a mean square of 1, then a factor. fuse_residual adds a residual to either.

#include <fmt/format.h>

#include "ops/core/broadcast.h"
#include "ops/core/checks.h"
#include "ops/elementwise/binary_cuda.h"
#include "ops/elementwise/binary_kernels.h"
#include "ops/normalization/parameters.h"
#include "ops/normalization/row_kernels.h"

namespace lenslet {

namespace {

/// Inputs: X of rank 1 and more; Scale and optionally B, mostly of a row's shape, broadcast to X; optionally a residual
/// like X, which is added to Y. Outputs: Y and optionally Mean and InvStdDev = 1 / sqrt(variance + epsilon).
/// RMSNormalization has neither B nor statistics.
class LayerNormOp final : public Op {
 public:
  bool centered = true;    ///< else RMSNormalization
  std::int64_t axis = -1;  ///< the first of a row
  float epsilon = 1e-5f;
  std::size_t outputs = 1;
  static constexpr std::size_t residual = 3;  ///< number of the input

  std::string_view type() const override { return centered ? "LayerNormalization" : "RMSNormalization"; }
  AttributeList attributes() const override { return {{"axis", axis}, {"epsilon", static_cast<double>(epsilon)}}; }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& x = required_input(inputs, 0, "X");
    require_parameter_dtypes(before_residual(inputs));
    first_axis(x.shape);  // there is one
    require_broadcast("Scale", required_input(inputs, 1, "Scale").shape, x.shape);
    if (present(inputs, 2)) require_broadcast("B", inputs[2].type.shape, x.shape);
    if (present(inputs, residual)) {
      require_shape("the residual", inputs[residual].type.shape, x.shape);
      require_dtype("the residual", inputs[residual].type.dtype, {x.dtype});
    }
    std::vector<TensorType> types(outputs, {DType::f32, statistics(x.shape)});
    types[0] = x;
    return types;
  }
  double flops(std::span<const InputInfo>, std::span<const TensorType> types) const override {
    return 8.0 * static_cast<double>(types[0].shape.elems());
  }
  std::string describe(std::span<const InputInfo> inputs) const override {
    return present(inputs, residual) ? "+residual" : "";
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape& y) const override {
    const int first = first_axis(y);
    for (const InputInfo& parameter : before_residual(inputs).subspan(1))
      if (parameter.present && without_ones(parameter.type.shape).rank() > y.rank() - first) return std::nullopt;
    AxisMap map = axes_kept_if(inputs.size(), y.rank(), [first](int i) { return i < first; });
    if (present(inputs, residual)) map.inputs[residual] = map.inputs[0];
    return map;
  }

  const Epilogue* epilogue() const override {
    static const Epilogue adds{.weight_input = Epilogue::no_input,
                               .bias_input = Epilogue::no_input,
                               .residual_input = static_cast<int>(residual)};
    return outputs == 1 ? &adds : nullptr;
  }
  std::shared_ptr<const Op> with_epilogue(Epilogue) const override { return nullptr; }  // it takes no activation

  Shape row(const Shape& x) const { return Shape(x.dims().subspan(static_cast<std::size_t>(first_axis(x)))); }
  /// Shape of Mean and InvStdDev: one element per row.
  Shape statistics(const Shape& x) const {
    Shape shape = x;
    for (int i = first_axis(x); i < x.rank(); ++i) shape = shape.with(i, 1);
    return shape;
  }

 private:
  static std::span<const InputInfo> before_residual(std::span<const InputInfo> inputs) {
    return inputs.first(std::min(inputs.size(), residual));
  }
  int first_axis(const Shape& x) const { return resolve_axis(axis, x.rank()); }
  static void require_broadcast(std::string_view name, const Shape& shape, const Shape& x) {
    if (shape.rank() > x.rank() || !(broadcast_shapes(shape, x) == x))
      throw Error(ErrorKind::invalid_model,
                  fmt::format("input {} has shape {}, which does not broadcast to {}", name, shape.str(), x.str()));
  }
  /// The shape without leading ones.
  static Shape without_ones(const Shape& shape) {
    const auto dims = shape.dims();
    const auto first = std::ranges::find_if(dims, [](std::int64_t dim) { return dim != 1; });
    return Shape(dims.subspan(static_cast<std::size_t>(first - dims.begin())));
  }

 public:
  /// True if Scale and B have exactly one element per element of a row.
  bool lie_as_rows(std::span<const InputInfo> inputs) const {
    const Shape own = without_ones(row(inputs[0].type.shape));
    return std::ranges::all_of(before_residual(inputs).subspan(1), [&](const InputInfo& parameter) {
      return !parameter.present || without_ones(parameter.type.shape) == own;
    });
  }
};

struct Rows {
  float epsilon;
  std::int64_t count, length;

  explicit Rows(const Binding& binding)
      : epsilon(binding.op<LayerNormOp>().epsilon),
        count(binding.op<LayerNormOp>().statistics(binding.shape(0)).elems()),
        length(binding.op<LayerNormOp>().row(binding.shape(0)).elems()) {}

  AffineOfElement affine(const KernelRun& run) const {
    return {run.in<float>(1), run.in<float>(2), run.out<float>(1), run.out<float>(2)};
  }
  const void* residual(const KernelRun& run) const { return run.in<void>(LayerNormOp::residual); }
};
struct RmsRows : Rows {
  using Rows::Rows;
  RmsAffineOfElement affine(const KernelRun& run) const { return {Rows::affine(run)}; }
};

bool lie_as_rows(const Problem& problem) { return problem.as<LayerNormOp>().lie_as_rows(problem.inputs()); }

/// Applies Scale and B of other shapes, and a residual, after the rows, which are scaled by a list of ones.
template <typename Rows>
class BoundBroadcast final : public BoundKernel {
 public:
  explicit BoundBroadcast(const Binding& binding) : rows_(binding) {
    if constexpr (cuda_built)
      if (binding.device.kind == DeviceKind::cuda)
        workspace_bytes_ = cuda::normalize_rows_workspace_bytes<Affine>(rows_.count, rows_.length);
    for (std::size_t i = 1; i < binding.problem.inputs().size(); ++i) {
      const Shape &x = binding.shape(0), &parameter = binding.shape(i);
      const BroadcastLoops::Operand operands[] = {{&x}, {&x}, {&parameter}};
      if (binding.problem.inputs()[i].present) steps_.push_back({i, {x, formats::nchw, operands}});
    }
  }
  std::size_t workspace_bytes() const override { return workspace_bytes_; }

  void run(const KernelRun& run) const override {
    Affine affine = rows_.affine(run);
    affine.scale = reinterpret_cast<const float*>(run.blob);
    affine.bias = nullptr;
    float* const y = run.out<float>();
    if (run.cuda != nullptr) {
      if constexpr (cuda_built) {
        cuda::normalize_rows(*run.cuda, affine, rows_.epsilon, rows_.count, rows_.length, DType::f32, run.in<float>(0),
                             y, run.workspace.data());
        for (const Step& step : steps_)
          cuda::binary(*run.cuda, step.kind(), DType::f32, step.loops, y, run.inputs[step.input].data(), y);
      }
      return;
    }
    normalize_rows(affine, rows_.epsilon, rows_.count, rows_.length, run.in<float>(0), y, *run.pool);
    for (const Step& step : steps_)
      for_each_run(step.loops, *run.pool, elementwise_grain, [&](const auto& at, std::int64_t n) {
        apply_binary(step.kind(), {y + at[1]}, {run.in<float>(step.input) + at[2], 0, step.loops.inner_stride(2)},
                     y + at[0], 0, 1, n);
      });
  }

 private:
  using Affine = decltype(std::declval<Rows>().affine(std::declval<KernelRun>()));
  struct Step {
    std::size_t input;
    BroadcastLoops loops;
    BinaryKind kind() const { return input == 1 ? BinaryKind::Mul : BinaryKind::Add; }
  };

  Rows rows_;
  std::vector<Step> steps_;
  std::size_t workspace_bytes_ = 0;
};

template <typename Rows>
std::unique_ptr<const BoundKernel> bind_cpu(const Binding& binding) {
  return lie_as_rows(binding.problem) ? bind_rows<Rows>(binding) : bind<BoundBroadcast<Rows>>(binding);
}
template <typename Rows>
std::unique_ptr<const BoundKernel> bind_cuda(const Binding& binding) {
  return lie_as_rows(binding.problem) ? bind_rows_cuda<Rows>(binding) : bind<BoundBroadcast<Rows>>(binding);
}

std::optional<BlobSpec> ones_spec(const Problem& problem, const Candidate&) {
  const std::int64_t length = problem.as<LayerNormOp>().row(problem.shape(0)).elems();
  if (lie_as_rows(problem) || length == 0) return std::nullopt;
  return BlobSpec{.key = fmt::format("{} ones", length), .bytes = static_cast<std::size_t>(length) * sizeof(float)};
}
void fill_ones(const Problem&, const Candidate&, std::span<std::byte> blob) {
  std::fill_n(reinterpret_cast<float*>(blob.data()), blob.size() / sizeof(float), 1.0F);
}

std::optional<std::string> refuse_cuda(const Problem& problem) {
  const DType dtype = problem.inputs()[0].type.dtype;
  if (dtype == DType::f32 || lie_as_rows(problem)) return std::nullopt;
  return fmt::format("{} would be rounded before a Scale or B of another shape than its rows", to_string(dtype));
}

/// Each element is rounded seven times (distance, deviation, gain, product, rest, scale, bias), each time by at most
/// 2^-24 of a value that is seldom above 5 times the rms: 35 * 2^-24. A sum with a residual is rounded once more, by at
/// most 2^-24 of what the bound is relative to, and seldom are all at their worst. Rows whose sums CUDA takes in
/// float32, up to 1,024 elements, lose 5 * 2^-24 of their gain by that.
template <typename Rows>
constexpr auto kernels = on_both({.types = dtypes<Types<float>>,
                                  .more_on_cuda = dtypes<HalfTypes>,
                                  .tolerance = 2.1e-6,
                                  .in_place = input_bit(0),
                                  .blob = ones_spec,
                                  .prepare = fill_ones},
                                 bind_cpu<Rows>, bind_cuda<Rows>, refuse_cuda);

std::shared_ptr<const Op> make(const NodeSpec& spec) {
  auto op = std::make_shared<LayerNormOp>();
  AttributeReader reader(spec);
  op->centered = spec.name == "LayerNormalization";
  op->axis = reader.integer("axis", -1);
  op->epsilon = static_cast<float>(reader.real("epsilon", 1e-5));
  op->outputs = spec.outputs;
  require_float_statistics(reader);
  reader.finish();
  return op;
}

}  // namespace

OpParts layer_norm() { return {make, kernels<Rows>}; }
OpParts rms_norm() { return {make, kernels<RmsRows>}; }

}  // namespace lenslet
