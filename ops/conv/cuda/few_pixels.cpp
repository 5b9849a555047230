// few_pixels: a 1x1 convolution with few output pixels (squeeze-and-excite branches, classifiers written as Conv), run
// by Gemm's kernel: y [N*H*W, K] = x [N*H*W, C] * w^T, w [K, C], no copies. Gemm reads the filters once where
// implicit_gemm would multiply mostly empty tiles. x, w and bias have the numbers of Gemm's A, B and C.

#include <fmt/format.h>

#include <algorithm>

#include "ops/conv/conv.h"
#include "ops/gemm/gemm_cuda.h"

namespace lenslet::cuda {
namespace {

/// The equivalent Gemm, epilogue included.
Problem as_product(const Problem& node) {
  const ConvProblem p = conv_problem(node);
  AttributeList attributes{{"transB", std::int64_t{1}}};
  append_attributes(attributes, *node.op().epilogue());
  const auto operands = node.inputs().first(std::min<std::size_t>(node.inputs().size(), ConvOp::residual));
  std::vector<InputInfo> inputs(operands.begin(), operands.end());
  inputs[MatrixOp::a].type.shape = {p.n * p.h * p.w, p.c};
  inputs[MatrixOp::b].type.shape = {p.k, p.c};
  return {make_normalised_op("Gemm", attributes, inputs.size()),
          inputs,
          {{node.outputs()[0].dtype, {p.n * p.h * p.w, p.k}}}};
}

class FewPixels final : public Kernel {
 public:
  std::string_view name() const override { return "few_pixels"; }
  DeviceKind device() const override { return DeviceKind::cuda; }
  DTypeSet types() const override { return cuda_product().types(); }

  /// Gemm's configuration, tolerance and estimate, plus a start. Within 25 % for 50 of 52 squeeze-and-excite layers on
  /// an H200, batch 1 and 4 (1.55 to 3.6 us), 1.05 to 2.4 times faster than the next best algorithm.
  Offer offer(const Problem& node, const Target& target) const override {
    const ConvProblem p = conv_problem(node);
    if (node.shape(ConvOp::input).rank() != 4) return Offer::refuse("it is no image");
    if (p.groups > 1 || p.r * p.s > 1 || p.padded() || p.h != p.p || p.w != p.q)
      return Offer::refuse("not a plain product: it has taps, groups, pads or strides");
    if (p.n * p.p * p.q > most_few_rows) return Offer::refuse(fmt::format("more than {} output pixels", most_few_rows));
    if (p.residual) return Offer::refuse("a residual: the product adds the bias and nothing else");
    Offer offer = cuda_product().offer(as_product(node), target);
    offer.candidates = of_conv(node, std::move(offer.candidates));
    return offer;
  }
  std::vector<Candidate> all_candidates(const Problem& node, const Target& target) const override {
    if (!offer(node, target).refusal.empty()) return {};
    return of_conv(node, cuda_product().all_candidates(as_product(node), target));
  }
  static std::vector<Candidate> of_conv(const Problem& node, std::vector<Candidate> of_product) {
    constexpr double start_us = 0.8;
    for (Candidate& candidate : of_product) {
      candidate.estimated_us += start_us;
      candidate.inputs.assign(node.inputs().size(), formats::nchw);
      candidate.inputs[ConvOp::input] = candidate.outputs[0] = formats::nhwc;
    }
    return of_product;
  }

  std::optional<BlobSpec> blob(const Problem& node, const Candidate& candidate) const override {
    return cuda_product().blob(as_product(node), candidate);
  }
  void prepare(const Problem& node, const Candidate& candidate, std::span<std::byte> blob) const override {
    cuda_product().prepare(as_product(node), candidate, blob);
  }
  std::unique_ptr<const BoundKernel> bind(const Binding& binding) const override {
    return cuda_product().bind({as_product(binding.problem), binding.candidate, binding.device});
  }
};

}  // namespace

const Kernel& conv_few_pixels() {
  static const FewPixels algorithm;
  return algorithm;
}

}  // namespace lenslet::cuda
