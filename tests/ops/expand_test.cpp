// Operators that are read as several others: the steps of each, with all and with none of the optional parts of a node.
// tests/models/expand_test.cpp computes some of them.

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sstream>
#include <string>
#include <vector>

#include "ops/expand.h"
#include "tests/ops/node_text.h"

namespace lenslet::test {
namespace {

std::string text_of(const Tensor& tensor) {
  const auto values = [&]<typename T>(T) {
    return fmt::format("{}", std::vector<T>(tensor.values<T>().begin(), tensor.values<T>().end()));
  };
  return fmt::format("{}{}",
                     tensor.shape().rank() == 0   ? "scalar "
                     : tensor.shape().rank() == 1 ? ""
                                                  : tensor.shape().str(),
                     tensor.dtype() == DType::f32 ? values(0.0F) : values(std::int64_t{}));
}

/// The steps of "Op/opset inputs outputs attribute=value ...". `inputs` has x for a given input and - for an omitted
/// one. Inputs are called a, b, c ..., outputs y0, y1 ..., other values v0, v1 ...
std::string steps_of(const std::string& node) {
  std::istringstream words(node);
  std::string op, inputs, domain;
  std::int64_t opset = 0;
  std::size_t outputs = 0;
  std::getline(words, op, '/');
  if (op.starts_with("ms.")) op.erase(0, 3), domain = "com.microsoft";
  words >> opset >> inputs >> outputs;
  const AttributeList attributes = parse_attributes(words);
  const ExpansionRow* const row = find_expansion(op, domain, opset);
  REQUIRE_MESSAGE(row != nullptr, node);
  std::vector<bool> given;
  for (const char c : inputs) given.push_back(c == 'x');
  Expansion made;
  try {
    made = expand(
        *row,
        NodeSpec{
            .attributes = attributes, .opset = opset, .inputs = inputs.size(), .outputs = outputs, .name = row->name},
        given);
  } catch (const Error& error) {
    return fmt::format("  {}: {}\n", to_string(error.kind()), error.what());
  }
  const auto name = [&](int value) -> std::string {
    const int first = static_cast<int>(inputs.size()), second = first + static_cast<int>(outputs);
    if (value < 0) return "-";
    CHECK(value < made.values);
    if (value < first) return std::string(1, static_cast<char>('a' + value));
    for (const Expansion::Constant& constant : made.constants)
      if (constant.value == value) return text_of(constant.tensor);
    return value < second ? fmt::format("y{}", value - first) : fmt::format("v{}", value - second);
  };
  const auto names = [&](const std::vector<int>& values) {
    std::vector<std::string> all;
    for (const int value : values) all.push_back(name(value));
    return fmt::format("{}", fmt::join(all, ", "));
  };
  std::string text;
  for (const Expansion::Step& step : made.steps) {
    std::string list = to_string(step.op->attributes());
    for (const auto& [key, value] : step.op->attributes())
      if (const Tensor* const tensor = std::get_if<Tensor>(&value)) list += " " + text_of(*tensor);
    text += fmt::format("  {} = {}({}){}{}\n", names(step.outputs), step.op->type(), names(step.inputs),
                        list.empty() ? "" : " ", list);
  }
  return text.empty() ? "  itself\n" : text;
}

}  // namespace

// data/expansions.txt: a line for each node, as for steps_of(), and its steps.
TEST_CASE("expand/steps") {
  CHECK(check_said("expansions.txt", true, [](const std::string& node, std::string&) { return steps_of(node); }) ==
        143);
}

}  // namespace lenslet::test
