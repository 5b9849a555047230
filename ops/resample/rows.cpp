// The operators that resample images.

#include "ops/families.h"

namespace lenslet {

OpParts resize();  // resize.cpp

std::span<const OpRow> resample_rows() {
  // name, domain, first version read, inputs min..max, outputs min..max, parts, notes
  static const OpRow rows[] = {
      {"Resize", "", 10, 1, 4, 1, 1, resize(), "scales or sizes known before the run; types but float32: nearest"},
      {"Upsample", "", 7, 1, 2, 1, 1, resize(), "as Resize"},
  };
  return rows;
}

}  // namespace lenslet
