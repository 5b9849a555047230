#pragma once
// A node's attributes as plain data, as the model file states them; read by dumps, observers and oracles.

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lenslet/export.h"
#include "lenslet/tensor.h"

namespace lenslet {

using AttributeValue = std::variant<std::int64_t, double, std::string, std::vector<std::int64_t>, std::vector<double>,
                                    std::vector<std::string>, Tensor>;

/// In the order given; names are unique.
using AttributeList = std::vector<std::pair<std::string, AttributeValue>>;

/// "strides=[2,2] activation=relu": one line; tensors and long lists are abbreviated.
LENSLET_API std::string to_string(const AttributeList& attributes);

}  // namespace lenslet
