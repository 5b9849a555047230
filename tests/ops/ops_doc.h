#pragma once
// docs/ops.md as it must be for the rows at hand. Builds without CUDA lack kernels, and know that column only in part.

#include <string>

#include "lenslet/model.h"
#include "ops/expand.h"

namespace lenslet::test {

inline std::string ops_doc() {
  return R"(# Operators

Written from the operators' and kernels' rows (ops/table.cpp) by the target `update-ops-doc`; a test fails when it is
out of date.

Models of opset 1 to 28 are read, nodes of opsets before 7 as those of 7, or as the second table says. "read from
version" is the first version of the operator whose attributes and inputs are understood; later versions up to opset 28
are understood too, except as the notes say. CPU and CUDA give the
element types that the kernels there take, "-" where there is none. An attribute or type that is not supported is
refused at load, by name. The few forms that only the CPU takes are in [limits.md](limits.md).

)" + op_support_table() +
         R"(
Operators that are read as others (ops/expand.cpp), with the types and devices of those:

)" + expansion_table();
}

}  // namespace lenslet::test
