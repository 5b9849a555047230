#include "ops/core/checks.h"

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

void require_equal_dtypes(std::span<const InputInfo> inputs) {
  for (std::size_t i = 1; i < inputs.size(); ++i)
    if (inputs[i].present && inputs[i].type.dtype != inputs[0].type.dtype)
      throw Error(ErrorKind::invalid_model,
                  fmt::format("input {} is {}, but input 0 is {}", i, to_string(inputs[i].type.dtype),
                              to_string(inputs[0].type.dtype)));
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

void require_rank(std::string_view what, const Shape& shape, int least, int most) {
  if (shape.rank() < least || shape.rank() > most)
    throw Error(ErrorKind::unsupported,
                fmt::format("{} has shape {} (supported: rank {} to {})", what, shape.str(), least, most));
}

int resolve_axis(std::int64_t axis, int rank) {
  if (axis < -rank || axis >= rank)
    throw Error(ErrorKind::invalid_model, fmt::format("axis {} is outside a tensor of rank {}", axis, rank));
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

}  // namespace lenslet
