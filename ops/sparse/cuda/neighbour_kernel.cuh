#pragma once
// The host half of neighbour_tiles and neighbour_mma: candidates, preparation and launch.

#include <algorithm>
#include <cassert>
#include <string>
#include <utility>

#include "base/cuda/vector.cuh"
#include "ops/core/config_text.h"
#include "ops/sparse/cuda/neighbours.cuh"
#include "ops/sparse/cuda/sparse_conv_cuda.h"

namespace lenslet::cuda {

using NeighbourFunction = void (*)(NeighbourCall);

class BoundNeighbours final : public BoundKernel {
 public:
  /// `known`: rulebook and neighbour table, if any, were on the device before the network ran.
  BoundNeighbours(const SparseConvProblem& p, std::int64_t length, bool known, const NeighbourPlan& plan,
                  SparseArithmetic arithmetic, NeighbourFunction function)
      : p_(p),
        plan_(plan),
        aligned_(plan.aligned(row_bytes(p, arithmetic))),
        function_(function),
        call_(p, length, plan, arithmetic) {
    call_.early = known;
  }

  void run(const KernelRun& run) const override {
    NeighbourCall call = call_;
    set_addresses(call, run);
    call.table = run.in<std::int32_t>(SparseConvOp::neighbours);
    assert(!aligned_ || quad_aligned(call.x));
    call.store_fours = p_.filters % 4 == 0 && quad_aligned(call.y, call.residual, call.bias);
    const std::size_t shared_bytes = plan_.shared_bytes(p_.taps, call.chunks);
    allow_shared_bytes(function_, shared_bytes);
    launch(*run.cuda, function_,
           dim3(static_cast<unsigned>(plan_.blocks(p_)), static_cast<unsigned>(plan_.tiles_n(p_))),
           static_cast<unsigned>(32 * plan_.warps), shared_bytes, call);
  }
  std::string fault() const override { return rulebook_fault(p_); }

 private:
  SparseConvProblem p_;
  NeighbourPlan plan_;
  bool aligned_;
  NeighbourFunction function_;
  NeighbourCall call_;
};

/// The arithmetic follows from the node and the requested numerics.
class NeighbourKernel : public Kernel {
 public:
  DeviceKind device() const final { return DeviceKind::cuda; }

  Offer offer(const Problem& node, const Target& target) const final {
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

  std::optional<BlobSpec> blob(const Problem& node, const Candidate& candidate) const final {
    const SparseConvProblem p = problem_of(node);
    const NeighbourPlan plan = read_neighbour_plan(p, arithmetic_of(node), candidate.config);
    BlobSpec spec;
    spec.bytes = neighbour_filter_bytes(p, plan, arithmetic_of(node));
    const std::string form = ConfigWriter()
                                 .add("width", std::int64_t{plan.width})
                                 .add("columns", std::int64_t{plan.columns})
                                 .add("terms", std::int64_t{plan.terms})
                                 .str();
    // The name is included: float32 and TF32 have different layouts.
    spec.key = prepared_key(node.as<SparseConvOp>(),
                            std::string(name()) + " " + form + " " + std::string(to_string(node.outputs()[0].dtype)));
    return spec;
  }

  void prepare(const Problem& node, const Candidate& candidate, std::span<std::byte> blob) const final {
    const SparseConvProblem p = problem_of(node);
    pack_neighbour_filters(node.as<SparseConvOp>(), p,
                           node.inputs()[SparseConvOp::filter].constant->values<float>().data(),
                           read_neighbour_plan(p, arithmetic_of(node), candidate.config), arithmetic_of(node), blob);
  }

  std::unique_ptr<const BoundKernel> bind(const Binding& binding) const final {
    const SparseConvProblem p = problem_of(binding.problem);
    const SparseArithmetic arithmetic = arithmetic_of(binding.problem);
    const NeighbourPlan plan = read_neighbour_plan(p, arithmetic, binding.candidate.config);
    const NeighbourFunction chosen = function(arithmetic, plan, plan.aligned(row_bytes(p, arithmetic)));
    if (chosen == nullptr) throw Error(ErrorKind::invalid_argument, "no kernel cuts it so: " + plan.str());
    const bool known = binding.constant(SparseConvOp::rulebook) != nullptr &&
                       (p.table_rows == 0 || binding.constant(SparseConvOp::neighbours) != nullptr);
    return std::make_unique<BoundNeighbours>(p, binding.shape(SparseConvOp::rulebook)[0], known, plan, arithmetic,
                                             chosen);
  }

 private:
  static SparseConvProblem problem_of(const Problem& node) { return node.as<SparseConvOp>().problem(node.inputs()); }
  /// Why the kernel is less exact than requested or unsupported; or nothing.
  virtual std::optional<std::string> refuse_numerics(const Problem& node, const Target& target) const = 0;
  virtual SparseArithmetic arithmetic_of(const Problem& node) const = 0;
  virtual double tolerance(SparseArithmetic arithmetic, std::int64_t terms) const = 0;
  /// Null when that configuration has no instance.
  virtual NeighbourFunction function(SparseArithmetic arithmetic, const NeighbourPlan& plan, bool aligned) const = 0;
};

}  // namespace lenslet::cuda
