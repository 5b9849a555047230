#pragma once
// Random data for a convolution with its exact result, and checks of an algorithm's output; for the tests of CPU and
// CUDA algorithms.

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
  Tensor x, w, bias, residual;  ///< NCHW; empty if the problem has none
  std::vector<float> scale;     ///< one for each filter, or none
  /// The output in double precision, with scales for algorithms of this oracle::tile_reach(). Slow.
  std::function<oracle::Array(std::int64_t reach)> reference;

  /// The same, computed on first use: never if all algorithms refuse the problem.
  const oracle::Array& exact(std::int64_t reach = 0) const;

 private:
  mutable std::map<std::int64_t, oracle::Array> computed_;  // by reach
};

/// For a node with these inputs: only its reference.
ConvData judged_by_oracle(std::string op, AttributeList attributes, std::span<const Tensor> inputs);

/// Normal float32 values with mean 0; `rectified` replaces negative values by 0.
Tensor normal(const Shape& shape, double deviation, std::mt19937& random, bool rectified = false);

ConvData make_conv_data(const ConvProblem& problem, std::mt19937& random);

/// Fails the current check if `y`, in any format, is further from data.exact() than `tolerance`. `algorithm`: the name
/// of one with tiles; its larger scales are computed only if the output exceeds the others' tolerance.
void compare(const Tensor& y, const ConvData& data, double tolerance, const std::string& where,
             std::string_view algorithm = {});

/// Whether the algorithm accepts a problem with constant filters, for the first of the runner's profiles.
bool accepts(const Kernel& algorithm, const ConvProblem& problem, const Numerics& numerics = {});

/// Runs each algorithm in every way that a plan for up to `threads` threads may, on op_runner() and with data from
/// `seed`: with constant and computed filters, in place and not. A refusal must have a reason.
void check_conv(std::span<const Kernel* const> algorithms, const ConvProblem& problem, unsigned seed, int threads,
                const Numerics& numerics = {});
void check_conv(const Kernel& algorithm, const ConvProblem& problem, unsigned seed, int threads,
                const Numerics& numerics = {});

/// A small random problem of any kind.
ConvProblem random_problem(std::mt19937& random);

}  // namespace lenslet::test
