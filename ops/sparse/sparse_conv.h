#pragma once
// The SparseConv operator: filters, epilogue and problem. No arithmetic.

#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "ops/core/conv_operands.h"
#include "ops/core/kernel.h"
#include "ops/sparse/rulebook.h"

namespace lenslet {

/// y[o,k] = activation(bias[k] + residual[o,k] + sum over taps t and their pairs (i, o) of
/// sum over c of w[k,c,t] * x[i,c]).
struct SparseConvProblem {
  std::int64_t max_inputs = 0, max_outputs = 0;  ///< rows of x and of y
  std::int64_t channels = 0, filters = 0, taps = 0;
  std::int64_t max_pairs = 0;  ///< that the rulebook may hold, identities included
  bool submanifold = false, inverse = false;
  bool weights_known = false, bias = false, residual = false;
  std::int64_t table_rows = 0;  ///< of the table of neighbours that is given; 0: none is
  Activation activation = {};
  DType filter_type = DType::f32, accumulator_type = DType::f32;  ///< as ConvProblem's
  bool requantized = false;
  std::int32_t y_zero_point = 0;

  /// With the largest possible number of pairs.
  double flops() const {
    return 2.0 * static_cast<double>(max_pairs) * static_cast<double>(channels) * static_cast<double>(filters);
  }
};

/// Inputs: x [sites,C], rulebook, w [K,C,spatial axes], sites (optional: the outputs' indices, whose rows are y's;
/// default: x's), bias [K] (optional), residual (optional: added before the activation), and the rulebook's neighbour
/// table [taps, rows], which the pass share_neighbours adds. attributes(): kind, and the epilogue's.
class SparseConvOp final : public Op {
 public:
  static constexpr std::size_t input = 0, rulebook = 1, filter = 2, sites = 3, bias = 4, residual = 5, neighbours = 6;

  explicit SparseConvOp(const NodeSpec& spec);

  std::string_view type() const override { return "SparseConv"; }
  AttributeList attributes() const override;
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override;
  double flops(std::span<const InputInfo> inputs, std::span<const TensorType> outputs) const override;
  std::string describe(std::span<const InputInfo> inputs) const override;
  const Epilogue* epilogue() const override { return &epilogue_; }
  std::shared_ptr<const Op> with_epilogue(Epilogue changed) const override;

  /// The problem of these inputs, fused parts included. Error(invalid_model).
  SparseConvProblem problem(std::span<const InputInfo> inputs) const;
  /// The weight of filter `k` times its channel's scale.
  double exact(float weight, std::int64_t k) const {
    return double{weight} * (epilogue_.scale.empty() ? 1.0 : double{epilogue_.scale[static_cast<std::size_t>(k)]});
  }
  /// The same, rounded once.
  float scaled(float weight, std::int64_t k) const { return static_cast<float>(exact(weight, k)); }
  std::span<const float> scale() const { return epilogue_.scale; }

 private:
  enum class Kind { submanifold, regular, inverse };
  Kind kind_ = Kind::submanifold;
  Epilogue epilogue_{.weight_input = static_cast<int>(filter),
                     .bias_input = static_cast<int>(bias),
                     .residual_input = static_cast<int>(residual)};
};

/// Why x, y and the residual are not all `storage`, or filters and bias not float32; or nothing.
std::optional<std::string> refuse_types(const Problem& node, DType storage);

/// A kernel's view of a run.
struct SparseConvRun : ConvOperands {
  RulebookView rulebook;

  /// Error(invalid_argument) as RulebookView.
  SparseConvRun(const SparseConvProblem& problem, const KernelRun& run);

  /// Calls f(first, last, worker) for blocks of `rows` outputs, on all threads.
  template <typename F>
  void for_each_block(std::int64_t rows, ThreadPool& pool, const F& f) const {
    const std::int64_t outputs = rulebook.outputs();
    pool.parallel_for((outputs + rows - 1) / rows, 1, [&](std::int64_t begin, std::int64_t end, int worker) {
      for (std::int64_t block = begin; block < end; ++block)
        f(block * rows, std::min(outputs, (block + 1) * rows), worker);
    });
  }
};

/// The kernels, in the files of their names.
const Kernel &sparse_conv_gathered_tiles(), &sparse_conv_gather_scatter();

}  // namespace lenslet
