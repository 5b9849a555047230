#pragma once
// Everything that keeps a model from running, gathered so that one Error can list it all.

#include <cstddef>
#include <string>
#include <vector>

#include "lenslet/error.h"

namespace lenslet {

class Problems {
 public:
  /// `where` names the node, value or port ("node conv1 (Conv, opset 13)"); empty for the model as a whole.
  void add(ErrorKind kind, std::string where, std::string reason);
  bool empty() const { return list_.empty(); }

  /// Does nothing without problems. One problem is thrown as it is. Several are thrown as an Error whose first line
  /// counts them and gives the first in full, followed by one line for each, the first included. The kind is
  /// invalid_model as soon as one of them is, else that of the first.
  void throw_if_any() const;

 private:
  struct Problem {
    ErrorKind kind;
    std::string where, reason;
  };
  std::vector<Problem> list_;
};

}  // namespace lenslet
