// The recurrent operators: one file for the operators, and one kernel per device for all three.

#include "ops/families.h"

namespace lenslet {

OpParts recurrent();

std::span<const OpRow> recurrent_rows() {
  // name, domain, first version read, inputs min..max, outputs min..max, parts, notes
  static const OpRow rows[] = {
      {"LSTM", "", 7, 3, 8, 1, 3, recurrent(), "default alpha and beta are the operators' own"},
      {"GRU", "", 7, 3, 6, 1, 2, recurrent(), "as LSTM"},
      {"RNN", "", 7, 3, 6, 1, 2, recurrent(), "as LSTM"},
  };
  return rows;
}

}  // namespace lenslet
