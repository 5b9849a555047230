#pragma once

#include <string>

#include "ops/conv/problem.h"

namespace lenslet {

/// Parses ConvProblem::str() of float32 with its epilogue ("1x64x56x56 -> 64, 3x3 s1 p1 g1 +bias +relu"), or the
/// shorter "N,C,H,W,K,R,S[,stride[,pad[,dilation[,groups]]]]", without epilogue and with the same stride, pad and
/// dilation on all sides. Error(invalid_argument) for anything else.
ConvProblem parse_conv(const std::string& text);

}  // namespace lenslet
