#include "ops/core/type_check.h"

#include <fmt/format.h>

#include <algorithm>

namespace lenslet {

void require_dtype(std::string_view what, DType dtype, std::initializer_list<DType> allowed) {
  if (std::find(allowed.begin(), allowed.end(), dtype) != allowed.end()) return;
  std::string names;
  for (const DType a : allowed) {
    if (!names.empty()) names += ", ";
    names += to_string(a);
  }
  throw Error(ErrorKind::unsupported,
              fmt::format("{} has element type {} (supported: {})", what, to_string(dtype), names));
}

const TensorType& required_input(std::span<const InputInfo> inputs, std::size_t index, std::string_view name) {
  if (!present(inputs, index))
    throw Error(ErrorKind::invalid_model, fmt::format("input {} ({}) is missing", index, name));
  return inputs[index].type;
}

void require_shape(std::string_view what, const Shape& shape, const Shape& expected) {
  if (!(shape == expected))
    throw Error(ErrorKind::invalid_model,
                fmt::format("{} has shape {}, expected {}", what, shape.str(), expected.str()));
}

int resolve_axis(std::int64_t axis, int rank) {
  if (axis < -rank || axis >= rank)
    throw Error(ErrorKind::invalid_model, fmt::format("axis {} is outside a tensor of rank {}", axis, rank));
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

}  // namespace lenslet
