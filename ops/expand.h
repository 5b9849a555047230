#pragma once
// Operators that are read as several others: those that ONNX or ONNX Runtime define by them, and those of
// old opsets whose form is another one today.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ops/core/op.h"

namespace lenslet {

/// Values are numbered: first the node's inputs and outputs, as written, then constants and what lies between.
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

/// An operator that is read so.
struct ExpansionRow {
  std::string_view name, domain;
  int min_inputs, max_inputs, max_outputs;  ///< max -1: any number
  std::string_view as;                      ///< in words, for docs/ops.md
  int before = 0;                           ///< not 0: nodes of opsets below it only
};
/// "| operator | domain | read as |": all of them.
std::string expansion_table();
/// Null for others.
const ExpansionRow* find_expansion(std::string_view name, std::string_view domain, std::int64_t opset);

/// What a node of that row means; no steps: it stays the operator of its name. `given` tells which of its inputs are
/// there. Errors as of an operator's maker.
Expansion expand(const ExpansionRow& row, const NodeSpec& spec, const std::vector<bool>& given);

}  // namespace lenslet
