#pragma once
// Operators that are read as several others: ONNX or ONNX Runtime defines them so, or old opsets have them in another
// form.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ops/core/op.h"

namespace lenslet {

/// Values are numbered: first the node's inputs and outputs in order, then constants and intermediate values.
struct Expansion {
  struct Step {
    std::shared_ptr<const Op> op;
    std::vector<int> inputs, outputs;  ///< -1: left out
  };
  struct Constant {
    int value = 0;
    Tensor tensor;
  };
  std::vector<Constant> constants;
  std::vector<Step> steps;  ///< in topological order
  int values = 0;           ///< in all
};

/// An operator that is expanded.
struct ExpansionRow {
  std::string_view name, domain;
  int min_inputs, max_inputs, max_outputs;  ///< max -1: any number
  std::string_view as;                      ///< in words, for docs/ops.md
  int before = 0;                           ///< not 0: nodes of opsets below it only
};
/// All of these as a table: "| operator | domain | read as |".
std::string expansion_table();
/// Null for other operators.
const ExpansionRow* find_expansion(std::string_view name, std::string_view domain, std::int64_t opset);

/// The expansion of a node of that row; without steps it stays as it is. `given`: which inputs are present. Errors as
/// of an operator's constructor.
Expansion expand(const ExpansionRow& row, const NodeSpec& spec, const std::vector<bool>& given);

}  // namespace lenslet
