// Operators on quantised tensors that compute in integers.

#include "ops/families.h"

namespace lenslet {

// in the files of their names
OpParts conv_integer(), matmul_integer(), quantized_binary(), quantized_table(), quantized_average_pool(),
    quantized_global_average_pool();

std::span<const OpRow> quantized_rows() {
  // name, domain, first version read, inputs min..max, outputs min..max, parts, notes
  static const OpRow rows[] = {
      {"ConvInteger", "", 10, 2, 4, 1, 1, conv_integer(), "1-D to 3-D; zero points for all or by output channel"},
      {"QLinearConv", "", 10, 8, 9, 1, 1, conv_integer(), "1-D to 3-D; scales of w for all or by output channel"},
      {"MatMulInteger", "", 10, 2, 4, 1, 1, matmul_integer(), "zero points for all, by row of A or column of B"},
      {"QLinearMatMul", "", 10, 8, 8, 1, 1, matmul_integer(), "scales for all, by row of A or column of B; one of y"},
      {"QuantizedAdd", own, never, 2, 2, 1, 1, quantized_binary(), "8-bit codes; broadcast"},
      {"QuantizedMul", own, never, 2, 2, 1, 1, quantized_binary(), "8-bit codes; broadcast"},
      {"QuantizedTable", own, never, 1, 1, 1, 1, quantized_table(), "a function of an 8-bit code, by its 256 results"},
      {"QuantizedAveragePool", own, never, 1, 1, 1, 1, quantized_average_pool(), "8-bit codes; 1-D to 3-D"},
      {"QuantizedGlobalAveragePool", own, never, 1, 1, 1, 1, quantized_global_average_pool(), "8-bit codes; 4-D"},
  };
  return rows;
}

}  // namespace lenslet
