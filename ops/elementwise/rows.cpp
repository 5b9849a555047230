// The elementwise operators.

#include <iterator>
#include <vector>

#include "ops/families.h"

namespace lenslet {

std::span<const OpRow> unary_rows();                  // unary.cpp: those of unary_kinds.h
OpParts arithmetic(), sum_or_mean(), prelu(), pow();  // binary.cpp, each of the names that its table has
OpParts comparison(), equal(), logical(), where();    // logic.cpp, likewise
OpParts clip(), cast();                               // in the files of their names

std::span<const OpRow> elementwise_rows() {
  // name, domain, first version read, inputs min..max, outputs min..max, parts, notes
  static const OpRow others[] = {
      {"Clip", "", 6, 1, 3, 1, 1, clip(), "bounds constant or computed"},
      {"PRelu", "", 7, 2, 2, 1, 1, prelu(), "the slope broadcasts to x"},
      {"Add", "", 7, 2, 2, 1, 1, arithmetic()},
      {"Sub", "", 7, 2, 2, 1, 1, arithmetic()},
      {"Mul", "", 7, 2, 2, 1, 1, arithmetic()},
      {"Div", "", 7, 2, 2, 1, 1, arithmetic(), "integers truncate towards 0"},
      {"Pow", "", 7, 2, 2, 1, 1, pow(), "exponents of the same types, in any pair"},
      {"Max", "", 6, 1, any_number, 1, 1, arithmetic()},
      {"Min", "", 6, 1, any_number, 1, 1, arithmetic()},
      {"Sum", "", 6, 1, any_number, 1, 1, sum_or_mean()},
      {"Mean", "", 6, 1, any_number, 1, 1, sum_or_mean()},
      {"Equal", "", 7, 2, 2, 1, 1, equal()},
      {"Less", "", 7, 2, 2, 1, 1, comparison()},
      {"LessOrEqual", "", 12, 2, 2, 1, 1, comparison()},
      {"Greater", "", 7, 2, 2, 1, 1, comparison()},
      {"GreaterOrEqual", "", 12, 2, 2, 1, 1, comparison()},
      {"And", "", 7, 2, 2, 1, 1, logical()},
      {"Or", "", 7, 2, 2, 1, 1, logical()},
      {"Xor", "", 7, 2, 2, 1, 1, logical()},
      {"Not", "", 1, 1, 1, 1, 1, logical()},
      {"Where", "", 9, 3, 3, 1, 1, where()},
      {"Cast", "", 6, 1, 1, 1, 1, cast(),
       "no strings, no 8-bit or 4-bit floats; out-of-range floats saturate to integers"},
  };
  static const std::vector<OpRow> rows = [] {
    std::vector<OpRow> all(unary_rows().begin(), unary_rows().end());
    all.insert(all.end(), std::begin(others), std::end(others));
    return all;
  }();
  return rows;
}

}  // namespace lenslet
