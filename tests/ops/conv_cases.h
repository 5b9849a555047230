#pragma once
// Awkward convolution problems for the tests of all algorithms.

#include <string>
#include <vector>

#include "ops/conv/problem.h"

namespace lenslet::test {

struct ConvCase {
  std::string name;  ///< unique: "3x3_pad1_c64_k64_13x13"
  ConvProblem problem;
};

const std::vector<ConvCase>& conv_cases();

/// Problems from texts for parse_conv.
std::vector<ConvProblem> convs(const std::vector<std::string>& rows);

}  // namespace lenslet::test
