#include "ops/core/shape_args.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/core/checks.h"
#include "ops/core/needs_value.h"

namespace lenslet {

namespace {

void check_integer_list(DType dtype, const Shape& shape, std::string_view name) {
  if (dtype != DType::i64 && dtype != DType::i32)
    throw Error(ErrorKind::invalid_model, fmt::format("{} must be int64 or int32, not {}", name, to_string(dtype)));
  if (shape.rank() > 1) throw Error(ErrorKind::invalid_model, fmt::format("{} must be 1-D, not {}", name, shape.str()));
}

void read_integers(const Tensor& tensor, std::int64_t* to) {
  if (tensor.dtype() == DType::i64)
    std::ranges::copy(tensor.values<std::int64_t>(), to);
  else
    std::ranges::copy(tensor.values<std::int32_t>(), to);
}

// The known value of an input, checked; null when it was left out.
const Tensor* known_list(std::span<const InputInfo> inputs, std::size_t index, std::string_view name) {
  if (!present(inputs, index)) return nullptr;
  check_integer_list(inputs[index].type.dtype, inputs[index].type.shape, name);
  return &known_value(inputs, index, name);
}

}  // namespace

AxisInts::AxisInts(std::span<const std::int64_t> list, std::string_view name) {
  if (list.size() > values.size())
    throw Error(ErrorKind::limit,
                fmt::format("{} has {} elements; at most {} axes are supported", name, list.size(), values.size()));
  std::ranges::copy(list, values.begin());
  size = static_cast<int>(list.size());
}

AxisInts axis_ints(const Tensor& tensor, std::string_view name) {
  check_integer_list(tensor.dtype(), tensor.shape(), name);
  AxisInts ints;
  if (static_cast<std::size_t>(tensor.elems()) > ints.values.size())
    throw Error(ErrorKind::limit, fmt::format("{} has {} elements; at most {} axes are supported", name, tensor.elems(),
                                              ints.values.size()));
  read_integers(tensor, ints.values.data());
  ints.size = static_cast<int>(tensor.elems());
  return ints;
}

std::optional<AxisInts> constant_axis_ints(std::span<const InputInfo> inputs, std::size_t index,
                                           std::string_view name) {
  const Tensor* tensor = known_list(inputs, index, name);
  if (tensor == nullptr) return std::nullopt;
  return axis_ints(*tensor, name);
}

AxisInts required_axis_ints(std::span<const InputInfo> inputs, std::size_t index, std::string_view name) {
  required_input(inputs, index, name);
  return *constant_axis_ints(inputs, index, name);
}

std::optional<std::vector<std::int64_t>> constant_integers(std::span<const InputInfo> inputs, std::size_t index,
                                                           std::string_view name) {
  const Tensor* tensor = known_list(inputs, index, name);
  if (tensor == nullptr) return std::nullopt;
  std::vector<std::int64_t> values(static_cast<std::size_t>(tensor->elems()));
  read_integers(*tensor, values.data());
  return values;
}

std::array<bool, Shape::max_rank> axis_mask(std::span<const std::int64_t> axes, int rank) {
  std::array<bool, Shape::max_rank> mask{};
  for (const std::int64_t axis : axes) {
    bool& named = mask[static_cast<std::size_t>(resolve_axis(axis, rank))];
    if (named) throw Error(ErrorKind::invalid_model, fmt::format("axis {} is named twice", axis));
    named = true;
  }
  return mask;
}

std::int64_t multiply_dims(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product))
    throw Error(ErrorKind::limit, fmt::format("a dimension of {} x {} is too large", a, b));
  return product;
}

std::int64_t add_dims(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum))
    throw Error(ErrorKind::limit, fmt::format("a dimension of {} + {} is too large", a, b));
  return sum;
}

}  // namespace lenslet
