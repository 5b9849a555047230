#pragma once
// Awkward convolution problems, as data: for the tests of all algorithms.

#include <string>
#include <vector>

#include "ops/conv/problem.h"

namespace lenslet::test {

struct ConvCase {
  std::string name;  ///< unique: "3x3_pad1_c64_k64_13x13"
  ConvProblem problem;
};

const std::vector<ConvCase>& conv_cases();

/// Rows that parse_conv reads.
std::vector<ConvProblem> convs(const std::vector<std::string>& rows);

}  // namespace lenslet::test
