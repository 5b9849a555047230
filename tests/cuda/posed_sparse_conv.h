#pragma once
// SparseConv on random sites as a plan runs the device's kernels, in the planned and other configurations.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "lenslet/numerics.h"
#include "ops/core/kernel.h"
#include "ops/sparse/cuda/neighbour_plan.h"
#include "tests/ops/conv_data.h"
#include "tests/ops/op_runner.h"
#include "tests/ops/sparse_sites.h"

namespace lenslet::test {

struct Wanted {
  std::string kind = "submanifold";  ///< as SparseConv has it
  Ints size, kernel{3, 3, 3}, strides{};
  std::int64_t channels, filters;
  double fill;
  std::string activation{};  ///< with an activation also a residual and scales
  const char* numerics = "fp32";
  bool copies = false;  ///< filters that copy x, and no bias

  std::string str() const {
    return fmt::format("{} [{}] of [{}] {} -> {} {} {}", kind, fmt::join(kernel, ","), fmt::join(size, ","), channels,
                       filters, activation, numerics);
  }
};

inline cuda::SparseArithmetic arithmetic_of(const Call& call) {
  const DType dtype = call.problem.outputs()[0].dtype;
  return call.kernel.name().ends_with("tiles") ? cuda::SparseArithmetic::fma
         : dtype == DType::f32                 ? cuda::SparseArithmetic::tf32
         : dtype == DType::f16                 ? cuda::SparseArithmetic::fp16
                                               : cuda::SparseArithmetic::bf16;
}

/// The call in other configurations of its kernel: large and small blocks, one and many warps, all filters resident or
/// two taps at a time. Only the call itself if the kernel has none.
inline std::vector<Candidate> tilings_of(const Call& call) {
  if (!call.kernel.name().starts_with("neighbour")) return {call.candidate};
  const SparseConvProblem p = call.problem.as<SparseConvOp>().problem(call.problem.inputs());
  const cuda::SparseArithmetic arithmetic = arithmetic_of(call);
  const cuda::NeighbourPlan planned = cuda::read_neighbour_plan(p, arithmetic, call.candidate.config);
  const std::int64_t chunks = planned.chunks(cuda::row_bytes(p, arithmetic));
  std::vector<Candidate> tilings;
  const auto add = [&](auto change) {
    cuda::NeighbourPlan plan = planned;
    change(plan);
    plan.rows = std::max(1, plan.rows / plan.tile_rows()) * plan.tile_rows();
    if (plan.shared_bytes(p.taps, chunks) > call.device.shared_bytes_per_block) return;
    Candidate tiling = call.candidate;
    tiling.config = plan.str();
    tilings.push_back(std::move(tiling));
  };
  const auto other = [&](const cuda::NeighbourPlan& plan) {
    return plan.fma ? 4 : plan.aligned(cuda::row_bytes(p, arithmetic)) ? 2 : 1;
  };
  const int sites = static_cast<int>(p.max_outputs);
  add([](cuda::NeighbourPlan&) {});
  add([](cuda::NeighbourPlan& plan) { plan.warps = 1, plan.fill = 1 << 16; });
  add([](cuda::NeighbourPlan& plan) { plan.fill = 1, plan.rows = 256; });
  add([&](cuda::NeighbourPlan& plan) {
    plan.fill = sites / 70 + 1, plan.rows = 192, plan.stage = std::min(plan.stage, 2);
  });
  add([&](cuda::NeighbourPlan& plan) {
    plan.pieces = other(plan), plan.fill = sites / 300 + 1, plan.rows = 320, plan.warps = 3;
  });
  add([&](cuda::NeighbourPlan& plan) {
    plan.warps = 8, plan.pieces = other(plan), plan.stage = std::min(plan.stage, 5), plan.rows = 64;
  });
  return tilings;
}

/// A problem in a plan's precision, and the exact result for the rounded inputs.
class Posed {
 public:
  Posed(const Wanted& w, unsigned seed) : numerics_(parse_numerics(w.numerics)) {
    std::mt19937 random(seed);
    const std::vector<Site> sites = draw_sites(random, 2, w.size, w.fill);
    const std::size_t dims = w.size.size();
    const auto bound = static_cast<std::int64_t>(sites.size()) + 77;
    const Tensor indices = indices_of(sites, bound, dims);
    const bool submanifold = w.kind == "submanifold", inverse = w.kind == "inverse";
    AttributeList grid{{"kind", std::string(submanifold ? "submanifold" : "regular")},
                       {"spatial_shape", w.size},
                       {"images", std::int64_t{2}},
                       {"kernel_shape", w.kernel}};
    if (!w.strides.empty()) grid.emplace_back("strides", w.strides);
    const std::vector<Tensor> book = run_op({.op = "SparseRulebook",
                                             .domain = "lenslet",
                                             .attributes = grid,
                                             .inputs = {indices},
                                             .outputs = submanifold ? 1U : 2U});
    const auto inputs = static_cast<std::size_t>(book[0].values<std::int32_t>()[inverse ? 1 : 0]);
    const std::int64_t rows = submanifold || inverse ? bound : book[1].shape()[0];
    Ints filter_shape{w.filters, w.channels};
    filter_shape.insert(filter_shape.end(), w.kernel.begin(), w.kernel.end());
    const DType storage = numerics_.storage;
    inputs_ = {features_of(inputs, inverse ? book[1].shape()[0] : bound, w.channels, seed).to_dtype(storage), book[0],
               random_f32(Shape(std::span<const std::int64_t>(filter_shape)), seed + 1),
               submanifold ? Tensor()
               : inverse   ? indices
                           : book[1],
               random_f32({w.filters}, seed + 2)};
    if (w.copies) {
      for (const std::size_t i : {2U, 4U}) std::ranges::fill(inputs_[i].values<float>(), 0.0F);
      const std::int64_t taps = inputs_[2].shape().elems() / (w.filters * w.channels);
      for (std::int64_t k = 0; k < w.filters; ++k)
        inputs_[2].values<float>()[static_cast<std::size_t>((k * w.channels + k) * taps + taps / 2)] = 1;
    }
    AttributeList attributes{{"kind", w.kind}};
    if (!w.activation.empty()) {
      inputs_.push_back(random_f32({rows, w.filters}, seed + 3).to_dtype(storage));
      std::vector<double> scale(static_cast<std::size_t>(w.filters));
      for (std::size_t k = 0; k < scale.size(); ++k) scale[k] = 0.5 + static_cast<double>(k % 4) / 4;
      attributes.emplace_back("activation", w.activation);
      attributes.emplace_back("weight_scale", scale);
    }
    const std::shared_ptr<const Op> op = make_normalised_op("SparseConv", attributes, inputs_.size());
    const std::vector<InputInfo> infos = infos_of(inputs_, {2, 4});
    const std::vector<TensorType> outputs{{storage, {rows, w.filters}}};
    problem_ = std::make_unique<Problem>(op, infos, outputs);
    const SparseConvProblem p = problem_->as<SparseConvOp>().problem(infos);
    const RulebookView view(book[0], p.taps, p.submanifold, p.inverse, p.max_inputs, p.max_outputs);
    table_ = Tensor(DType::i32, {p.taps, neighbour_rows(rows)});
    write_neighbours(view, p.taps, table_.shape()[1], table_.values<std::int32_t>().data());
    with_table_ = std::make_unique<Problem>(op, infos_of(and_table(inputs_), {2, 4}), outputs);
    judged_ = judged_by_oracle("SparseConv", op->attributes(), inputs_);
  }

  std::vector<Tensor>& inputs() { return inputs_; }
  const oracle::Array& exact() const { return judged_.exact(); }

  /// Calls f(call) for every kernel of the device that takes it, with all block sizes, and where possible also with a
  /// table of neighbours.
  template <typename F>
  int for_each_call(const F& f) const {
    int calls = 0;
    for (const Kernel* kernel : kernels_of("SparseConv", op_runner().device()))
      for (const Problem* problem : {problem_.get(), with_table_.get()}) {
        if (problem == with_table_.get() && !kernel->name().starts_with("neighbour")) continue;
        test::for_each_call(
            op_runner(), *problem, *kernel, 1,
            [&](const Call& call) {
              ++calls;
              for (const Candidate& tiling : tilings_of(call))
                f({.problem = call.problem,
                   .kernel = call.kernel,
                   .candidate = tiling,
                   .device = call.device,
                   .in_place = call.in_place});
            },
            numerics_);
      }
    return calls;
  }

  std::vector<Tensor> run(const Call& call, const std::string& where) const {
    const bool with_table = call.problem.inputs().size() > SparseConvOp::neighbours;
    return run_between_guards(op_runner(), call, with_table ? and_table(inputs_) : inputs_, where);
  }

  void check(const Call& call, const std::string& where) const {
    compare(run(call, where)[0], judged_, call.candidate.tolerance, where + ": " + call.str());
  }

 private:
  std::vector<Tensor> and_table(std::vector<Tensor> inputs) const {
    inputs.resize(SparseConvOp::neighbours);
    inputs.push_back(table_);
    return inputs;
  }

  Numerics numerics_;
  std::vector<Tensor> inputs_;
  Tensor table_;
  std::unique_ptr<Problem> problem_, with_table_;
  ConvData judged_;
};

}  // namespace lenslet::test
