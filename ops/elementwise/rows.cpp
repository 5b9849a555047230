// The elementwise operators.

#include <vector>

#include "ops/core/never.h"
#include "ops/families.h"

namespace lenslet {

std::span<const OpRow> unary_rows();             // unary.cpp: those of unary_kinds.h
std::span<const OpRow> binary_rows();            // binary.cpp: those of binary_kinds.h, Sum, Mean and Pow
std::span<const OpRow> logic_rows();             // logic.cpp: those of logic.h, and Where
OpParts clip(), cast(), cast_like(), swiglu();   // in the files of their names
OpParts quantize_linear(), dequantize_linear();  // quantize.cpp
OpParts elementwise_chain();                     // chain.cpp

std::span<const OpRow> elementwise_rows() {
  // name, domain, first version read, inputs min..max, outputs min..max, parts, notes
  static const OpRow others[] = {
      {"Clip", "", 6, 1, 3, 1, 1, clip(), "bounds constant or computed"},
      {"Cast", "", 6, 1, 1, 1, 1, cast(), "no strings; out-of-range floats saturate to integers of 8 bits and more"},
      {"CastLike", "", 15, 2, 2, 1, 1, cast_like(), "as Cast"},
      {"SwiGLU", "", 28, 2, 2, 1, 1, swiglu()},
      {"ElementwiseChain", own, never, 1, 5, 1, 1, elementwise_chain(), "elementwise nodes that follow each other"},
      {"QuantizeLinear", "", 10, 2, 3, 1, 1, quantize_linear(),
       "to 2, 4, 8 and 16 bits, by tensor, axis or whole blocks"},
      {"DequantizeLinear", "", 10, 2, 3, 1, 1, dequantize_linear(), "by tensor, axis or whole blocks"},
  };
  static const std::vector<OpRow> rows = [] {
    std::vector<OpRow> all;
    for (const std::span<const OpRow> some :
         {unary_rows(), binary_rows(), logic_rows(), std::span<const OpRow>(others)})
      all.insert(all.end(), some.begin(), some.end());
    return all;
  }();
  return rows;
}

}  // namespace lenslet
