#pragma once
// Constants that are added to the scores of attention heads, as the one bias that Attention takes.

#include <optional>
#include <span>

#include "ops/gemm/attention.h"
#include "runtime/graph/graph.h"

namespace lenslet {

/// A constant that is added to scores of this shape [..,L,S], broadcast, times a factor.
struct BiasTerm {
  ValueId value = no_id;
  Shape scores;
  double factor = 1;
};

/// The sum of the terms, summed in double: float32 [bias_n,bias_heads,bias_queries,S] of the problem, each extent as
/// small as it can be. Nothing if it would be larger than plans should hold.
std::optional<Tensor> constant_bias(const Graph& graph, std::span<const BiasTerm> terms, const AttentionProblem& p);

}  // namespace lenslet
