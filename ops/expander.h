#pragma once
// Builds a node's expansion, for the rows of expand.cpp and old_opsets.cpp.

#include <algorithm>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lenslet/error.h"
#include "ops/core/attribute_reader.h"
#include "ops/expand.h"

namespace lenslet {

/// Operators are made in their opset 13 form.
class Expander {
 public:
  static constexpr int none = -1;

  AttributeReader attributes;

  Expander(const NodeSpec& spec, const std::vector<bool>& given)
      : attributes(spec.attributes), given_(given), outputs_(static_cast<int>(spec.outputs)) {
    made.values = static_cast<int>(spec.inputs) + outputs_;
  }

  int inputs() const { return static_cast<int>(given_.size()); }
  int input(int i) const { return i < inputs() && given_[static_cast<std::size_t>(i)] ? i : none; }
  int output(int i = 0) const { return i < outputs_ ? inputs() + i : none; }
  int constant(Tensor tensor) {
    made.constants.push_back({made.values, std::move(tensor)});
    return made.values++;
  }
  int constant(float value) { return constant(Tensor::of<float>(Shape{}, {value})); }
  int integers(const std::vector<std::int64_t>& values) {
    return constant(Tensor::of<std::int64_t>({static_cast<std::int64_t>(values.size())}, std::span(values)));
  }

  /// Returns `to`, or a new value.
  int add(std::string_view op, std::vector<int> inputs, const AttributeList& list = {}, int to = none,
          std::int64_t opset = 13, std::string_view domain = {}) {
    if (to == none) to = made.values++;
    add_to({to}, op, std::move(inputs), list, opset, domain);
    return to;
  }
  /// The outputs are values; `none`: left out.
  void add_to(std::vector<int> outputs, std::string_view op, std::vector<int> inputs, const AttributeList& list = {},
              std::int64_t opset = 13, std::string_view domain = {}) {
    while (!inputs.empty() && inputs.back() == none) inputs.pop_back();
    while (!outputs.empty() && outputs.back() == none) outputs.pop_back();
    if (find_op(op, domain) == nullptr) throw Error(ErrorKind::unsupported, "the operator is not supported");
    std::shared_ptr<const Op> step = make_op(op, domain, list, inputs.size(), outputs.size(), opset);
    made.steps.push_back({std::move(step), std::move(inputs), std::move(outputs)});
  }
  int value() { return made.values++; }  ///< a new one, for add_to

  /// Dequantises x, with its scale and zero point in the next two inputs.
  int dequantize(int x) { return add("DequantizeLinear", {input(x), input(x + 1), input(x + 2)}); }
  void quantize(int x, int scale, int zero) { add("QuantizeLinear", {x, input(scale), input(zero)}, {}, output()); }

  /// Attributes of these names, unchanged.
  AttributeList taken(const NodeSpec& spec, std::initializer_list<std::string_view> names) {
    AttributeList list;
    for (const auto& entry : spec.attributes)
      if (std::find(names.begin(), names.end(), entry.first) != names.end()) list.push_back(entry);
    for (const std::string_view name : names) attributes.ignore(name);
    return list;
  }

  Expansion made;

 private:
  std::vector<bool> given_;
  int outputs_;
};

using Expand = void (*)(const NodeSpec&, Expander&);

/// A row with its code.
struct ExpansionCode : ExpansionRow {
  Expand expand = nullptr;
};
std::span<const ExpansionCode> old_opset_rows();  ///< old_opsets.cpp

}  // namespace lenslet
