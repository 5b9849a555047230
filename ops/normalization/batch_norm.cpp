// BatchNormalization in inference: y = activation((x - mean[c]) / sqrt(var[c] + epsilon) * scale[c] + bias[c]).

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/cuda_built.h"
#include "ops/core/broadcast.h"
#include "ops/core/by_floats.h"
#include "ops/core/checks.h"
#include "ops/core/grain.h"
#include "ops/core/kernel.h"
#include "ops/core/row_kernel.h"
#include "ops/elementwise/binary_kernels.h"
#include "ops/elementwise/elementwise.h"
#include "ops/normalization/batch_norm_cuda.h"
#include "ops/normalization/parameters.h"

namespace lenslet {

namespace {

/// Inputs: x [N,C,...] of rank 2 to 5, scale, bias, mean, var, each [C], of x's type, or float32 beside a 16-bit x.
class BatchNormOp final : public Op {
 public:
  explicit BatchNormOp(const NodeSpec& spec) {
    AttributeReader reader(spec);
    epsilon = static_cast<float>(reader.real("epsilon", 1e-5));
    reader.ignore("momentum");
    if (reader.integer("spatial", 1) != 1)
      throw Error(ErrorKind::unsupported, "attribute 'spatial' = 0 (statistics per element) is not supported");
    if (reader.flag("training_mode", false))
      throw Error(ErrorKind::unsupported, "attribute 'training_mode' = 1 is not supported: lenslet does inference");
    if (spec.outputs > 1)
      throw Error(ErrorKind::unsupported, "outputs of training (running statistics) are not supported");
    if (spec.normalised) read_epilogue(reader, epilogue_);
    reader.finish();
  }

  float epsilon = 1e-5f;
  const Activation& activation() const { return epilogue_.activation; }

  std::string_view type() const override { return "BatchNormalization"; }
  AttributeList attributes() const override {
    AttributeList list{{"epsilon", static_cast<double>(epsilon)}};
    append_attributes(list, epilogue_);
    return list;
  }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& x = required_input(inputs, 0, "X");
    require_rank("input X", x.shape, 2, 5);
    require_parameter_dtypes(inputs);
    constexpr std::string_view names[] = {"X", "scale", "B", "mean", "var"};
    for (std::size_t i = 1; i < 5; ++i)
      require_shape(fmt::format("input {}", names[i]), required_input(inputs, i, names[i]).shape, Shape{x.shape[1]});
    return {x};
  }
  double flops(std::span<const InputInfo>, std::span<const TensorType> outputs) const override {
    return 2.0 * static_cast<double>(outputs[0].shape.elems());
  }
  std::string describe(std::span<const InputInfo>) const override {
    return epilogue_.open() ? std::string() : fmt::format("+{}", to_string(activation()));
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape& y) const override {
    return axes_kept_if(inputs.size(), y.rank(), [](int) { return true; });
  }

  std::optional<ChannelAffine> as_channel_affine(std::span<const InputInfo> inputs, std::size_t side,
                                                 const Shape& output) const override {
    if (side != 0 || !epilogue_.open()) return std::nullopt;
    std::span<const float> parameters[4];
    for (std::size_t i = 1; i < 5; ++i) {
      const Tensor* constant = inputs[i].constant;
      if (constant == nullptr || constant->dtype() != DType::f32 || constant->elems() != output[1]) return std::nullopt;
      parameters[i - 1] = constant->values<float>();
    }
    const auto& [scale, bias, mean, var] = parameters;
    ChannelAffine affine;
    for (std::size_t c = 0; c < scale.size(); ++c) {
      affine.factor.push_back(factor(scale[c], var[c]));
      affine.offset.push_back(offset(bias[c], mean[c], affine.factor.back()));
    }
    return affine;
  }

  const Epilogue* epilogue() const override { return &epilogue_; }
  std::shared_ptr<const Op> with_epilogue(Epilogue changed) const override {
    auto op = std::make_shared<BatchNormOp>(*this);
    op->epilogue_ = std::move(changed);
    return op;
  }

  // Rewritten as x * factor + offset, in double.
  double factor(float scale, float var) const {
    return static_cast<double>(scale) / std::sqrt(static_cast<double>(var) + static_cast<double>(epsilon));
  }
  static double offset(float bias, float mean, double factor) {
    return static_cast<double>(bias) - static_cast<double>(mean) * factor;
  }
  /// Writes a factor, then an offset, per channel.
  void fill_factors(const float* scale, const float* bias, const float* mean, const float* var, std::int64_t channels,
                    float* to) const {
    for (std::int64_t c = 0; c < channels; ++c) {
      const double exact = factor(scale[c], var[c]);
      to[c] = static_cast<float>(exact);
      to[channels + c] = static_cast<float>(offset(bias[c], mean[c], exact));
    }
  }

 private:
  Epilogue epilogue_{.weight_input = Epilogue::no_input, .bias_input = Epilogue::no_input};  ///< an activation alone
};

// A factor, then an offset, per channel: in the workspace if computed in the run, on CUDA in the blob if they are
// known.
std::size_t factor_bytes(std::int64_t channels) { return 2 * sizeof(float) * static_cast<std::size_t>(channels); }

bool has_known_factors(const Problem& problem) {
  const auto parameters = problem.inputs().subspan(1, 4);
  return std::ranges::all_of(parameters, [](const InputInfo& each) {
    return each.constant != nullptr && each.constant->dtype() == DType::f32;
  });
}

void fill_known_factors(const Problem& problem, float* to) {
  const auto values = [&](std::size_t input) { return problem.inputs()[input].constant->values<float>(); };
  problem.as<BatchNormOp>().fill_factors(values(1).data(), values(2).data(), values(3).data(), values(4).data(),
                                         problem.shape(0)[1], to);
}

BroadcastLoops loops_of(const Binding& binding) {
  const Shape& x = binding.shape(0);
  Shape channels = x;
  for (int d = 0; d < x.rank(); ++d)
    if (d != 1) channels = channels.with(d, 1);
  const Format format = binding.output_format();
  const BroadcastLoops::Operand operands[] = {{&x, format}, {&x, format}, {&channels, formats::nchw}};
  return {x, format, operands};
}

using lenslet::apply_scale_shift;
void apply_scale_shift(const BFloat16* x, std::int64_t x_row, const float* scale, const float* shift,
                       std::int64_t stride, const Activation& activation, BFloat16* y, std::int64_t rows,
                       std::int64_t n) {
  alignas(64) FloatPiece piece;
  for_each_piece(rows, n, [&](std::int64_t row, std::int64_t here, std::int64_t first, std::int64_t count) {
    widen_rows(x + row * x_row + first, x_row, here, count, piece.data());
    apply_scale_shift(piece.data(), count, scale + first * stride, shift + first * stride, stride, activation,
                      piece.data(), here, count);
    narrow_rows(piece.data(), y + row * n + first, n, here, count);
  });
}

/// The CPU kernel. Factors and offsets are computed before the run if their parameters are known. T: float or bfloat16.
template <typename T>
class BoundBatchNorm final : public BoundKernel, private RowKernel {
 public:
  explicit BoundBatchNorm(const Binding& binding)
      : op_(binding.op<BatchNormOp>()),
        shape_(binding.shape(0)),
        nhwc_(shape_.rank() == 4 && binding.output_format() == formats::nhwc),
        x_pixel_(element_strides(shape_, binding.format(0))[3]),
        loops_(loops_of(binding)) {
    if (!has_known_factors(binding.problem)) return;
    known_.resize(2 * static_cast<std::size_t>(shape_[1]));
    fill_known_factors(binding.problem, known_.data());
  }

  std::size_t workspace_bytes() const override { return known_.empty() ? factor_bytes(shape_[1]) : 0; }
  void run(const KernelRun& run) const override {
    const float* factor = known_.data();
    if (known_.empty()) {
      auto* const made = reinterpret_cast<float*>(run.workspace.data());
      op_.fill_factors(run.in<float>(1), run.in<float>(2), run.in<float>(3), run.in<float>(4), shape_[1], made);
      factor = made;
    }
    const std::int64_t channels = shape_[1];
    const T* x = run.in<T>(0);
    T* y = run.out<T>();
    if (nhwc_) {
      const std::int64_t pixels = shape_[0] * shape_[2] * shape_[3];
      return run.pool->parallel_for(pixels, 1 + elementwise_grain / std::max<std::int64_t>(1, channels),
                                    [&](std::int64_t begin, std::int64_t end, int) {
                                      compute_pixels(x + begin * x_pixel_, factor, y + begin * channels, end - begin);
                                    });
    }
    for_each_run(loops_, *run.pool, elementwise_grain, [&](const auto& at, std::int64_t n) {
      apply_scale_shift(x + at[1], n, factor + at[2], factor + channels + at[2], loops_.inner_stride(2),
                        op_.activation(), y + at[0], 1, n);
    });
  }
  const RowKernel* row_kernel() const override {
    return std::is_same_v<T, float> && nhwc_ && !known_.empty() ? this : nullptr;
  }

 private:
  RowShape x_shape() const override { return {shape_[0], shape_[2], shape_[3] * x_pixel_}; }
  RowShape y_shape() const override { return {shape_[0], shape_[2], shape_[3] * shape_[1]}; }
  Rows reads(Rows rows) const override { return rows; }
  void run_rows(const KernelRun&, const ImageRows& rows) const override {
    if constexpr (std::is_same_v<T, float>)
      compute_pixels(rows.x.at(rows.rows.begin), known_.data(), rows.y.at(rows.rows.begin),
                     rows.rows.count() * shape_[3]);
  }

  /// nhwc. `factor`: a factor, then an offset, per channel.
  void compute_pixels(const T* x, const float* factor, T* y, std::int64_t pixels) const {
    apply_scale_shift(x, x_pixel_, factor, factor + shape_[1], 1, op_.activation(), y, pixels, shape_[1]);
  }

  BatchNormOp op_;
  Shape shape_;
  bool nhwc_;
  std::int64_t x_pixel_;  ///< nhwc: elements from one pixel of x to the next
  BroadcastLoops loops_;
  std::vector<float> known_;
};

std::unique_ptr<const BoundKernel> bind_cuda(const Binding& binding) {
  const Shape& x = binding.shape(0);
  std::int64_t outer = x[0], inner = 1;
  const std::int64_t channels = x[1];
  const bool nhwc = binding.format(0).order == Format::Order::channels_last;
  for (int d = 2; d < x.rank(); ++d) (nhwc ? outer : inner) *= x[d];
  const std::int64_t x_gap = nhwc ? element_strides(x, binding.format(0))[3] - channels : 0;
  const auto run_on = [=, op = binding.op<BatchNormOp>()](const KernelRun& run) {
    if constexpr (cuda_built) {
      const auto* factors = reinterpret_cast<const float*>(run.blob);
      if (factors == nullptr) {
        auto* const made = reinterpret_cast<float*>(run.workspace.data());
        cuda::batch_norm_factors(*run.cuda,
                                 {run.inputs[1].data(), run.inputs[2].data(), run.inputs[3].data(),
                                  run.inputs[4].data(), op.epsilon, run.inputs[1].dtype()},
                                 channels, made);
        factors = made;
      }
      cuda::batch_norm(*run.cuda, factors, op.activation(), run.inputs[0].dtype(), outer, channels, inner, x_gap,
                       run.inputs[0].data(), run.outputs[0].data());
    }
  };
  return bound(run_on, has_known_factors(binding.problem) ? 0 : factor_bytes(channels));
}

std::optional<BlobSpec> factors_spec(const Problem& problem, const Candidate&) {
  const std::int64_t channels = problem.shape(0)[1];
  if (!has_known_factors(problem) || channels == 0) return std::nullopt;
  return BlobSpec{.key = fmt::format("factors, epsilon {}", problem.as<BatchNormOp>().epsilon),
                  .bytes = factor_bytes(channels)};
}
void prepare_factors(const Problem& problem, const Candidate&, std::span<std::byte> blob) {
  fill_known_factors(problem, reinterpret_cast<float*>(blob.data()));
}

std::optional<std::string> refuse_cpu(const Problem& problem) {
  if (problem.inputs()[1].type.dtype == DType::f32) return std::nullopt;
  return "parameters other than float32";
}

constexpr auto kernels = [] {
  auto both = on_both({.types = dtypes<WithBrain<Types<float>>>,
                       .more_on_cuda = dtypes<HalfTypes>,
                       .formats = nchw_or_nhwc,
                       .tolerance = 2e-6,
                       .in_place = input_bit(0),
                       .pitched_inputs = input_bit(0)},
                      bind_typed<BoundBatchNorm, WithBrain<Types<float>>>, bind_cuda);
  both[0].refuse = refuse_cpu;
  both[1].reads_for = [](const Problem& problem) { return has_known_factors(problem) ? input_bit(0) : all_inputs; };
  both[1].blob = factors_spec;
  both[1].prepare = prepare_factors;
  return both;
}();

}  // namespace

OpParts batch_norm() { return {make_from<BatchNormOp>, kernels}; }

}  // namespace lenslet
