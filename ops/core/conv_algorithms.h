#pragma once
// The algorithms that PlanOptions::conv_algorithm chooses among.

#include <vector>

#include "ops/core/kernel.h"

namespace lenslet {

/// Of all operators that it speaks of, in the order in which they are asked (ops/table.cpp).
std::vector<const Kernel*> conv_algorithms(DeviceKind device);

}  // namespace lenslet
