// What neighbour_tiles and neighbour_mma offer, prepare and bind.

#include "ops/sparse/cuda/neighbour_kernel.h"

#include <string>
#include <utility>

#include "ops/core/config_text.h"
#include "ops/sparse/cuda/sparse_conv_cuda.h"

namespace lenslet::cuda {
namespace {

SparseConvProblem problem_of(const Problem& node) { return node.as<SparseConvOp>().problem(node.inputs()); }

}  // namespace

Offer NeighbourKernel::offer(const Problem& node, const Target& target) const {
  if (auto why = refuse_numerics(node, target)) return Offer::refuse(std::move(*why));
  if (auto why = refuse_types(node, node.outputs()[0].dtype)) return Offer::refuse(std::move(*why));
  const SparseConvProblem p = problem_of(node);
  if (!p.weights_known) return Offer::refuse("its filters are computed by the network");
  if (auto why = refuse_sizes(p, node)) return Offer::refuse(std::move(*why));
  const SparseArithmetic arithmetic = arithmetic_of(node);
  const NeighbourPlan plan = plan_neighbours(p, arithmetic, target.device);
  if (plan.tiles_n(p) > 65535) return Offer::refuse("more than 65535 tiles of filters");
  if (auto why = target.device.refuse_shared(plan.shared_bytes(p.taps, plan.chunks(row_bytes(p, arithmetic)))))
    return Offer::refuse(std::move(*why));
  Candidate candidate = prepared_candidate(node, p, plan.str());
  candidate.estimated_us = neighbour_us(p, arithmetic, target.device);
  candidate.tolerance = tolerance(arithmetic, p.channels * p.taps);
  return candidate;
}

std::optional<BlobSpec> NeighbourKernel::blob(const Problem& node, const Candidate& candidate) const {
  const SparseConvProblem p = problem_of(node);
  const NeighbourPlan plan = read_neighbour_plan(p, arithmetic_of(node), candidate.config);
  BlobSpec spec;
  spec.bytes = neighbour_filter_bytes(p, plan, arithmetic_of(node));
  const std::string form = ConfigWriter()
                               .add("width", std::int64_t{plan.width})
                               .add("columns", std::int64_t{plan.columns})
                               .add("terms", std::int64_t{plan.terms})
                               .str();
  // With the name: in float32 and as TF32 they lie otherwise.
  spec.key = prepared_key(node.as<SparseConvOp>(),
                          std::string(name()) + " " + form + " " + std::string(to_string(node.outputs()[0].dtype)));
  return spec;
}

void NeighbourKernel::prepare(const Problem& node, const Candidate& candidate, std::span<std::byte> blob) const {
  const SparseConvProblem p = problem_of(node);
  pack_neighbour_filters(node.as<SparseConvOp>(), p,
                         node.inputs()[SparseConvOp::filter].constant->values<float>().data(),
                         read_neighbour_plan(p, arithmetic_of(node), candidate.config), arithmetic_of(node), blob);
}

std::unique_ptr<const BoundKernel> NeighbourKernel::bind(const Binding& binding) const {
  const SparseConvProblem p = problem_of(binding.problem);
  const SparseArithmetic arithmetic = arithmetic_of(binding.problem);
  const NeighbourPlan plan = read_neighbour_plan(p, arithmetic, binding.candidate.config);
  const bool known = binding.constant(SparseConvOp::rulebook) != nullptr &&
                     (p.table_rows == 0 || binding.constant(SparseConvOp::neighbours) != nullptr);
  auto bound = launch({p, binding.shape(SparseConvOp::rulebook)[0], known, plan, arithmetic});
  if (bound == nullptr) throw Error(ErrorKind::invalid_argument, "no kernel has this configuration: " + plan.str());
  return bound;
}

}  // namespace lenslet::cuda
