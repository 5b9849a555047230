#pragma once
// Random data for a convolution with its exact result, and the judgement of what an algorithm made of it: shared by the
// tests of the CPU and the CUDA algorithms.

#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ops/conv/algorithm.h"
#include "oracle/oracle.h"

namespace lenslet::test {

struct ConvData {
  Tensor x, w, bias, residual;  ///< NCHW; left empty where the problem has none
  std::vector<float> scale;     ///< one a filter, or none
  /// The output in double precision, with the scales of algorithms of that oracle::tile_reach(). Slow.
  std::function<oracle::Array(std::int64_t reach)> reference;

  /// The same, computed when it is first asked for: never where all algorithms refuse the problem.
  const oracle::Array& exact(std::int64_t reach = 0) const;

 private:
  mutable std::map<std::int64_t, oracle::Array> computed_;  // by reach
};

/// Of a node with these inputs: its reference alone.
ConvData judged_by_oracle(std::string op, AttributeList attributes, std::span<const Tensor> inputs);

/// Float32 of mean 0; `rectified`: 0 in place of what is negative.
Tensor normal(const Shape& shape, double deviation, std::mt19937& random, bool rectified = false);

ConvData make_conv_data(const ConvProblem& problem, std::mt19937& random);

/// Fails the current check when `y`, in any format, is further from data.exact() than `tolerance` states. `algorithm`:
/// the name of one with tiles, whose larger scales are asked for only where its output is beyond the others'.
void compare(const Tensor& y, const ConvData& data, double tolerance, const std::string& where,
             std::string_view algorithm = {});

/// Does the algorithm take a problem with known filters, for the least of the runner's profiles?
bool accepts(const Kernel& algorithm, const ConvProblem& problem, const Numerics& numerics = {});

/// Runs each algorithm in every way that a plan for up to `threads` threads may, where op_runner() does, on data drawn
/// from `seed`: with known filters and with computed ones, in place and not. A refusal must have a reason.
void check_conv(std::span<const Kernel* const> algorithms, const ConvProblem& problem, unsigned seed, int threads,
                const Numerics& numerics = {});
void check_conv(const Kernel& algorithm, const ConvProblem& problem, unsigned seed, int threads,
                const Numerics& numerics = {});

/// A small problem of any kind, drawn.
ConvProblem random_problem(std::mt19937& random);

}  // namespace lenslet::test
