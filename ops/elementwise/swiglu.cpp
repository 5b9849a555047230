// SwiGLU: swish of one tensor times another of its shape.

#include "base/cuda_built.h"
#include "ops/core/checks.h"
#include "ops/elementwise/binary_cuda.h"
#include "ops/elementwise/binary_kernels.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/unary_kernels.h"

namespace lenslet {

namespace {

/// y = a * sigmoid(alpha * a) * b.
class SwiGlu final : public Op {
 public:
  explicit SwiGlu(const NodeSpec& spec) {
    AttributeReader reader(spec);
    alpha = static_cast<float>(reader.real("alpha", 1));
    reader.finish();
  }
  float alpha;

  std::string_view type() const override { return "SwiGLU"; }
  AttributeList attributes() const override { return {{"alpha", static_cast<double>(alpha)}}; }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& a = required_input(inputs, 0, "A");
    require_shape("input B", required_input(inputs, 1, "B").shape, a.shape);
    require_equal_dtypes(inputs);
    return {a};
  }
  double flops(std::span<const InputInfo>, std::span<const TensorType> outputs) const override {
    return 5.0 * static_cast<double>(outputs[0].shape.elems());
  }
  std::size_t elementwise_inputs() const override { return any_number; }
};

/// A and B have one layout; a constant is nchw.
std::span<const Format> formats_for(const Problem& problem) {
  const auto inputs = problem.inputs();
  return inputs[0].constant != nullptr || inputs[1].constant != nullptr ? std::span<const Format>(nchw_only)
                                                                        : nchw_or_nhwc;
}

void run_cpu(const SwiGlu& op, const KernelRun& run) {
  const UnaryFunction swish{UnaryKind::Swish, op.alpha, 0};
  const float *a = run.in<float>(0), *b = run.in<float>(1);
  float* y = run.out<float>();
  // One grain at a time, which stays in L1 between the two steps.
  run.pool->parallel_for(run.outputs[0].elems(), elementwise_grain, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t at = begin; at < end; at += elementwise_grain) {
      const std::int64_t n = std::min(elementwise_grain, end - at);
      apply_unary(swish, a + at, y + at, n);
      apply_binary(BinaryKind::Mul, {y + at}, {b + at}, y + at, 0, 1, n);
    }
  });
}

void run_cuda(const SwiGlu& op, const KernelRun& run) {
  if constexpr (cuda_built)
    cuda::swiglu(*run.cuda, op.alpha, run.outputs[0].dtype(), run.inputs[0].data(), run.inputs[1].data(),
                 run.outputs[0].elems(), run.outputs[0].data());
}

// Swish errs by a few ulp.
constexpr auto kernels = on_both({.types = dtypes<FloatTypes>,
                                  .more_on_cuda = dtypes<HalfTypes>,
                                  .formats_for = formats_for,
                                  .tolerance = 2e-6,
                                  .in_place = input_bit(0)},
                                 bind_run<run_cpu>, bind_run<run_cuda>);

}  // namespace

OpParts swiglu() { return {make_from<SwiGlu>, kernels}; }

}  // namespace lenslet
