#include "models/onnx_attribute.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "lenslet/error.h"
#include "models/names.h"

namespace lenslet {

namespace {

using Type = OnnxAttributeType;

// By number.
constexpr std::string_view type_names[] = {
    "nothing",
    "a float",
    "an integer",
    "a string",
    "a tensor",
    "a subgraph",
    "a list of floats",
    "a list of integers",
    "a list of strings",
    "a list of tensors",
    "a list of subgraphs",
    "a sparse tensor",
    "a list of sparse tensors",
    "a type",
    "a list of types",
};
static_assert(std::size(type_names) == static_cast<std::size_t>(Type::type_protos) + 1);

std::string_view type_name(Type type) {
  const auto number = static_cast<std::size_t>(type);  // as the file declares it: anything
  return number < std::size(type_names) ? type_names[number] : "of an unknown kind";
}

// Old exporters omit the type; the only field present then decides. Zero scalars and empty lists may be absent although
// the type is declared.
Type type_of(const OnnxAttribute& attribute) {
  const bool declared = attribute.type != Type::undefined;
  if (std::popcount(attribute.present) > 1)
    throw Error(ErrorKind::invalid_model, fmt::format("attribute '{}' holds values of several kinds", attribute.name));
  const auto present =
      attribute.present == 0 ? Type::undefined : static_cast<Type>(std::countr_zero(attribute.present));
  if (!declared && present == Type::undefined)
    throw Error(ErrorKind::invalid_model, fmt::format("attribute '{}' holds no value", attribute.name));
  if (declared && present != Type::undefined && present != attribute.type)
    throw Error(ErrorKind::invalid_model, fmt::format("attribute '{}' is declared {} and holds {}", attribute.name,
                                                      type_name(attribute.type), type_name(present)));
  return declared ? attribute.type : present;
}

// Errors quote the text; no operator takes bytes.
void check_text(const OnnxAttribute& attribute, std::string_view text) {
  if (const std::string_view why = why_not_shown(text); !why.empty())
    throw Error(ErrorKind::invalid_model, fmt::format("attribute '{}' {}", attribute.name, why));
}

AttributeValue value_of(const OnnxAttribute& attribute, const TensorSource& source) {
  if (!attribute.reference.empty())
    throw Error(ErrorKind::unsupported,
                fmt::format("attribute '{}' refers to an attribute of a function", attribute.name));
  const Type type = type_of(attribute);
  check_text(attribute, attribute.text);
  for (const std::string_view text : attribute.texts) check_text(attribute, text);
  switch (type) {
    case Type::real:
      return static_cast<double>(attribute.real);
    case Type::integer:
      return attribute.integer;
    case Type::text:
      return std::string(attribute.text);
    case Type::reals:
      return attribute.reals;
    case Type::integers:
      return attribute.integers;
    case Type::texts:
      return std::vector<std::string>(attribute.texts.begin(), attribute.texts.end());
    case Type::tensor:
      if (!attribute.tensor)
        throw Error(ErrorKind::invalid_model, fmt::format("attribute '{}' holds no tensor", attribute.name));
      try {
        return to_tensor(*attribute.tensor, source);
      } catch (const Error& error) {
        throw Error(error.kind(), fmt::format("attribute '{}': {}", attribute.name, error.what()));
      }
    default:
      throw Error(ErrorKind::unsupported,
                  fmt::format("attribute '{}' is {}, which is not supported", attribute.name, type_name(type)));
  }
}

}  // namespace

AttributeList to_attributes(const OnnxNode& node, const TensorSource& source) {
  AttributeList list;
  for (const OnnxAttribute& attribute : node.attributes) {
    if (std::any_of(list.begin(), list.end(), [&](const auto& entry) { return entry.first == attribute.name; }))
      throw Error(ErrorKind::invalid_model, fmt::format("attribute '{}' occurs twice", attribute.name));
    list.emplace_back(attribute.name, value_of(attribute, source));
  }
  return list;
}

}  // namespace lenslet
