#pragma once
// Collects everything that keeps a model from running, so that one Error can list it all.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "lenslet/error.h"

namespace lenslet {

class Problems {
 public:
  /// `where` names the node, value or port ("node conv1 (Conv, opset 13)"); empty for the model as a whole. `op`: the
  /// operator of a node, by which problems are counted.
  void add(ErrorKind kind, std::string where, std::string reason, std::string_view op = {});
  bool empty() const { return list_.empty(); }

  /// Does nothing without problems. One problem is thrown as it is. Several are thrown as an Error whose first line
  /// counts them ("DequantizeLinear x228, QuantizeLinear x104") and gives the first in full, followed by one line for
  /// each, the first included. The kind is invalid_model as soon as one of them is, else that of the first.
  void throw_if_any() const;

 private:
  struct Problem {
    ErrorKind kind;
    std::string where, reason, op;
  };
  std::string counts() const;

  std::vector<Problem> list_;
};

}  // namespace lenslet
