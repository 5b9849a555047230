#include "ops/core/constant_value.h"

#include <fmt/format.h>

#include <vector>

#include "lenslet/error.h"
#include "ops/core/attribute_reader.h"

namespace lenslet {
namespace {

template <typename T, typename From>
Tensor list_tensor(const std::vector<From>& list) {
  std::vector<T> values;
  for (const From value : list) values.push_back(static_cast<T>(value));
  return Tensor::of<T>(Shape{static_cast<std::int64_t>(values.size())}, std::span<const T>(values));
}

}  // namespace

Tensor constant_value(const AttributeList& attributes) {
  for (const auto& [name, value] : attributes)
    if (name == "sparse_value" || name == "value_string" || name == "value_strings")
      throw Error(ErrorKind::unsupported,
                  fmt::format("attribute '{}': strings and sparse tensors are not supported", name));
  if (attributes.size() != 1)
    throw Error(ErrorKind::invalid_model,
                fmt::format("{} attributes; exactly one must hold the value", attributes.size()));
  AttributeReader reader(attributes);
  Tensor value;
  if (reader.has("value"))
    value = *reader.tensor("value");
  else if (reader.has("value_float"))
    value = Tensor::of<float>(Shape{}, {static_cast<float>(reader.real("value_float", 0))});
  else if (reader.has("value_floats"))
    value = list_tensor<float>(reader.reals("value_floats"));
  else if (reader.has("value_int"))
    value = Tensor::of<std::int64_t>(Shape{}, {reader.integer("value_int", 0)});
  else if (reader.has("value_ints"))
    value = list_tensor<std::int64_t>(reader.integers("value_ints"));
  else
    throw Error(ErrorKind::invalid_model,
                fmt::format("attribute '{}' is not one of a Constant's", attributes.front().first));
  return value;
}

}  // namespace lenslet
