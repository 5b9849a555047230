// gather_scatter: refusals and cost. Kernel: gather_scatter.cu.

#include <algorithm>
#include <utility>

#include "ops/core/config_text.h"
#include "ops/core/not_built.h"
#include "ops/core/sum_tolerance.h"
#include "ops/sparse/cuda/sparse_conv_cuda.h"

namespace lenslet::cuda {
namespace {

class GatherScatter final : public Kernel {
 public:
  std::string_view name() const override { return "gather_scatter"; }
  DeviceKind device() const override { return DeviceKind::cuda; }
  DTypeSet types() const override { return dtypes<Types<float>>; }

  Offer offer(const Problem& node, const Target& target) const override {
    if (auto why = refuse_types(node, DType::f32)) return Offer::refuse(std::move(*why));
    const SparseConvProblem p = node.as<SparseConvOp>().problem(node.inputs());
    if (auto why = refuse_sizes(p, node)) return Offer::refuse(std::move(*why));
    Candidate candidate;
    candidate.inputs.resize(node.inputs().size());
    candidate.outputs.resize(1);
    // For the bound: as many outputs at once as blocks, each a bisection and its terms one after the other, whose
    // filters lie apart and come from L2. Guesses.
    constexpr double bisection_us = 3, us_per_k = 0.1;
    const auto turns = static_cast<double>((p.max_outputs + 16 * target.device.units - 1) / (16 * target.device.units) *
                                           ((p.filters + gather_scatter_threads - 1) / gather_scatter_threads));
    candidate.estimated_us =
        2 * target.device.launch_us + turns * (bisection_us + us_per_k * static_cast<double>(p.taps * p.channels));
    candidate.tolerance = sum_tolerance(p.channels * p.taps);
    candidate.in_place = p.residual ? input_bit(SparseConvOp::residual) : no_inputs;
    return candidate;
  }

  std::optional<BlobSpec> blob(const Problem& node, const Candidate&) const override {
    const auto scale = node.as<SparseConvOp>().scale();
    if (scale.empty()) return std::nullopt;
    BlobSpec spec;
    spec.bytes = scale.size() * sizeof(float);
    spec.key = "scale ";
    spec.key.append(reinterpret_cast<const char*>(scale.data()), spec.bytes);
    return spec;
  }
  void prepare(const Problem& node, const Candidate&, std::span<std::byte> blob) const override {
    std::ranges::copy(std::as_bytes(node.as<SparseConvOp>().scale()), blob.begin());
  }

  std::unique_ptr<const BoundKernel> bind(const Binding& binding) const override {
    ConfigReader(binding.candidate.config).finish();
    if constexpr (cuda_built)
      return bind_gather_scatter(binding.op<SparseConvOp>().problem(binding.problem.inputs()),
                                 binding.shape(SparseConvOp::rulebook)[0], binding.device.units);
    else
      return not_built();
  }
};

}  // namespace

const Kernel& sparse_conv_gather_scatter() {
  static const GatherScatter kernel;
  return kernel;
}

}  // namespace lenslet::cuda
