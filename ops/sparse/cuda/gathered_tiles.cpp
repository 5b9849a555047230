// gathered_tiles: refusals and filters. Launch: gathered_tiles.cu.

#include <string>
#include <utility>

#include "ops/core/not_built.h"
#include "ops/core/sum_tolerance.h"
#include "ops/sparse/cuda/gathered_plan.h"
#include "ops/sparse/cuda/sparse_conv_cuda.h"

namespace lenslet::cuda {
namespace {

class GatheredTiles final : public Kernel {
 public:
  std::string_view name() const override { return "gathered_tiles"; }
  DTypeSet types() const override { return dtypes<Types<float>>; }
  DeviceKind device() const override { return DeviceKind::cuda; }

  Offer offer(const Problem& node, const Target& target) const override {
    if (node.outputs()[0].dtype != DType::f32) return Offer::refuse("it multiplies float32");
    if (auto why = refuse_types(node, DType::f32)) return Offer::refuse(std::move(*why));
    const SparseConvProblem p = problem_of(node);
    if (!p.weights_known) return Offer::refuse("its filters are computed by the network");
    if (auto why = refuse_sizes(p, node)) return Offer::refuse(std::move(*why));
    const GatheredPlan plan = plan_gathered(p, target.device);
    if (plan.tiles_n(p) > 65535) return Offer::refuse("more than 65535 tiles of filters");
    if (auto why = target.device.refuse_shared(plan.shared_bytes(p.taps, gathered_units(p))))
      return Offer::refuse(std::move(*why));
    Candidate candidate = prepared_candidate(node, p, plan.str());
    candidate.workspace_bytes = plan.workspace_bytes(p);
    candidate.estimated_us = gathered_us(p, plan, target.device);
    candidate.tolerance = sum_tolerance(p.channels * p.taps);
    return candidate;
  }

  std::optional<BlobSpec> blob(const Problem& node, const Candidate& candidate) const override {
    const SparseConvProblem p = problem_of(node);
    const GatheredPlan plan = read_gathered_plan(p, candidate.config);
    BlobSpec spec;
    spec.bytes = gathered_filter_bytes(p, plan);
    spec.key = prepared_key(node.as<SparseConvOp>(), "columns=" + std::to_string(plan.columns));
    return spec;
  }

  void prepare(const Problem& node, const Candidate& candidate, std::span<std::byte> blob) const override {
    const SparseConvProblem p = problem_of(node);
    pack_gathered_filters(node.as<SparseConvOp>(), p,
                          node.inputs()[SparseConvOp::filter].constant->values<float>().data(),
                          read_gathered_plan(p, candidate.config), blob);
  }

  std::unique_ptr<const BoundKernel> bind(const Binding& binding) const override {
    const SparseConvProblem p = problem_of(binding.problem);
    const GatheredPlan plan = read_gathered_plan(p, binding.candidate.config);
    if constexpr (cuda_built)
      return bind_gathered_tiles(p, binding.shape(SparseConvOp::rulebook)[0], plan);
    else
      return not_built(plan.workspace_bytes(p));
  }

 private:
  static SparseConvProblem problem_of(const Problem& node) { return node.as<SparseConvOp>().problem(node.inputs()); }
};

}  // namespace

const Kernel& sparse_conv_gathered_tiles() {
  static const GatheredTiles kernel;
  return kernel;
}

}  // namespace lenslet::cuda
