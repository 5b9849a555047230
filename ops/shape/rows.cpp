// Shape operators: views of the same bytes, and results that are known without reading any.

#include "ops/families.h"

namespace lenslet {

// Each in the file of its name; squeeze.cpp, constant.cpp and shape.cpp have two.
OpParts reshape(), flatten(), squeeze(), unsqueeze(), identity(), dropout(), relabel(), bit_cast();
OpParts shape(), size(), constant(), constant_of_shape(), range();

std::span<const OpRow> shape_rows() {
  // name, domain, first version read, inputs min..max, outputs min..max, parts, notes
  static const OpRow rows[] = {
      {"Reshape", "", 5, 2, 2, 1, 1, reshape()},
      {"Flatten", "", 1, 1, 1, 1, 1, flatten()},
      {"Squeeze", "", 1, 1, 2, 1, 1, squeeze()},
      {"Unsqueeze", "", 1, 1, 2, 1, 1, unsqueeze()},
      {"Identity", "", 1, 1, 1, 1, 1, identity()},
      {"BitCast", "", 26, 1, 1, 1, 1, bit_cast(), "not of float16, bfloat16 and float64"},
      {"Dropout", "", 7, 1, 3, 1, 2, dropout(), "inference only"},
      {"Relabel", own, never, 1, 1, 1, 1, relabel(), "4-D, no bytes move"},
      {"Shape", "", 1, 1, 1, 1, 1, shape()},
      {"Size", "", 1, 1, 1, 1, 1, size()},
      {"Constant", "", 1, 0, 0, 1, 1, constant(), "value, value_float(s), value_int(s)"},
      {"ConstantOfShape", "", 9, 1, 1, 1, 1, constant_of_shape()},
      {"Range", "", 11, 3, 3, 1, 1, range()},
  };
  return rows;
}

}  // namespace lenslet
