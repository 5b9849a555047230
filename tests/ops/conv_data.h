#pragma once
// Random data for a convolution with its exact result, and the judgement of what an algorithm made of it: shared by the
// tests of the CPU and the CUDA algorithms.

#include <random>
#include <string>
#include <vector>

#include "ops/conv/algorithm.h"
#include "oracle/oracle.h"

namespace lenslet::test {

struct ConvData {
  Tensor x, w, bias, residual;  ///< NCHW; left empty where the problem has none
  std::vector<float> scale;     ///< one a filter, or none
  oracle::Array exact;
  double rms = 0;  ///< what the tolerance is relative to
};

ConvData make_conv_data(const ConvProblem& problem, std::mt19937& random);

/// The elements as they lie in memory in `layout`.
std::vector<float> in_layout(const Tensor& tensor, Format layout);

/// What the Pad step makes of x before algorithms with wants_padded().
Tensor zero_padded(const Tensor& x, const ConvProblem& problem);

/// Fails the current check when `y`, in the algorithm's layout, is further from data.exact than the algorithm states.
void compare(const ConvAlgorithm& algorithm, const ConvProblem& problem, const ConvData& data, float* y,
             const std::string& where);

/// A small problem of any kind, drawn.
ConvProblem random_problem(std::mt19937& random);

}  // namespace lenslet::test
