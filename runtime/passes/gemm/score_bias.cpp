#include "runtime/passes/gemm/score_bias.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace lenslet {
namespace {

// Sums of more bytes than this stay Adds: each plan holds them.
constexpr std::int64_t most_bytes = 64 << 20;

/// The extent of the sum, as of AttentionProblem.
struct BiasSize {
  std::int64_t n = 1, heads = 1, queries = 1;
};

void add(std::vector<double>& sum, const BiasSize& size, const Graph& graph, const BiasTerm& term,
         const AttentionProblem& p) {
  const Shape &scores = term.scores, &own = graph.value(term.value).shape;
  const auto values = graph.value(term.value).constant.values<float>();
  std::size_t at = 0;
  for (std::int64_t n = 0; n < size.n; ++n)
    for (std::int64_t h = 0; h < size.heads; ++h)
      for (std::int64_t i = 0; i < size.queries; ++i) {
        // Where row i of head n * H + h starts, and the step along it.
        std::int64_t index = n * p.heads + h, start = 0, step = 1;
        const std::int64_t along = own.rank() > 0 && own[own.rank() - 1] != 1 ? 1 : 0;
        for (int axis = scores.rank() - 1, from = own.rank() - 1; from >= 0; --axis, --from) {
          const int batch = scores.rank() - 2;
          const std::int64_t position = axis > batch ? 0 : axis == batch ? i : index % scores[axis];
          if (axis < batch) index /= scores[axis];
          if (own[from] != 1) start += position * step;
          step *= own[from];
        }
        for (std::int64_t j = 0; j < p.keys; ++j)
          sum[at++] += term.factor * static_cast<double>(values[static_cast<std::size_t>(start + j * along)]);
      }
}

}  // namespace

std::optional<Tensor> constant_bias(const Graph& graph, std::span<const BiasTerm> terms, const AttentionProblem& p) {
  const std::int64_t all = p.n * p.heads;
  // A term repeats behind the axes in which it has size 1.
  std::int64_t period = 1;
  bool of_heads = false, of_queries = false;
  for (const BiasTerm& term : terms) {
    const Shape& scores = term.scores;
    const int batch = scores.rank() - 2, lacks = scores.rank() - graph.value(term.value).shape.rank();
    const auto own = [&](int axis) { return axis < lacks ? 1 : graph.value(term.value).shape[axis - lacks]; };
    int outer = 0;
    while (outer < batch && own(outer) == 1) ++outer;
    std::int64_t repeats = 1;
    for (int axis = outer; axis < batch; ++axis) repeats *= scores[axis];
    period = std::lcm(period, repeats);
    of_heads = of_heads || !(batch == 0 || (scores[batch - 1] == p.heads && own(batch - 1) == 1));
    of_queries = of_queries || own(batch) != 1;
  }
  const BiasSize size{
      .n = std::lcm(period, p.heads) / p.heads, .heads = of_heads ? p.heads : 1, .queries = of_queries ? p.queries : 1};
  if (all % std::lcm(period, p.heads) != 0 ||
      size.n * size.heads * size.queries * p.keys > most_bytes / static_cast<std::int64_t>(sizeof(float)))
    return std::nullopt;
  std::vector<double> sum(static_cast<std::size_t>(size.n * size.heads * size.queries * p.keys));
  for (const BiasTerm& term : terms) add(sum, size, graph, term, p);
  Tensor bias(DType::f32, Shape{size.n, size.heads, size.queries, p.keys});
  std::ranges::transform(sum, bias.values<float>().begin(), [](double value) { return static_cast<float>(value); });
  return bias;
}

}  // namespace lenslet
