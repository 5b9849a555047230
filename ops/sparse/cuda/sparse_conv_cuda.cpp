#include "ops/sparse/cuda/sparse_conv_cuda.h"

#include <fmt/format.h>

#include <utility>

namespace lenslet::cuda {

std::optional<std::string> refuse_sizes(const SparseConvProblem& p, const Problem& node) {
  // Blocks have 32 to 256 outputs; rounded up, their row numbers must stay below 2^31, too.
  constexpr std::int64_t limit = std::int64_t{1} << 30;
  if (p.max_inputs > limit / 8 || p.max_outputs > limit / 8) return "more than 2^27 sites";
  if (node.shape(SparseConvOp::rulebook)[0] > 2 * limit - 1) return "a rulebook of more than 2^31 numbers";
  if (p.channels > limit / 256 || p.filters > limit / 256) return "more than 2^22 channels or filters";
  return std::nullopt;
}

std::string rulebook_fault(const SparseConvProblem& p) {
  return fmt::format(
      "the rulebook is none of {} taps that leads from at most {} sites to at most {}, or has pairs that are out of "
      "order, or of sites that are not",
      p.taps, p.max_inputs, p.max_outputs);
}

Candidate prepared_candidate(const Problem& node, const SparseConvProblem& p, std::string config) {
  Candidate candidate;
  candidate.config = std::move(config);
  candidate.inputs.resize(node.inputs().size());
  candidate.outputs.resize(1);
  candidate.in_place = p.residual ? input_bit(SparseConvOp::residual) : no_inputs;
  candidate.reads = all_inputs & ~input_bit(SparseConvOp::filter);
  return candidate;
}

std::string prepared_key(const SparseConvOp& op, std::string form) {
  const auto scale = op.scale();
  return form.append(1, ' ').append(reinterpret_cast<const char*>(scale.data()), scale.size() * sizeof(float));
}

}  // namespace lenslet::cuda
