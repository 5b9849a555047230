// The operators that resample images.

#include "ops/families.h"

namespace lenslet {

// Each in the file of its name.
OpParts resize(), grid_sample(), affine_grid(), roi_align(), non_max_suppression();

std::span<const OpRow> resample_rows() {
  // name, domain, first version read, inputs min..max, outputs min..max, parts, notes
  static const OpRow rows[] = {
      {"Resize", "", 10, 1, 4, 1, 1, resize(),
       "8-bit integers: nearest, and linear without antialias; other types but float32: nearest"},
      {"Upsample", "", 7, 1, 2, 1, 1, resize(), "as Resize"},
      {"GridSample", "", 16, 2, 2, 1, 1, grid_sample(), "4-D; 5-D: nearest and linear"},
      {"AffineGrid", "", 20, 2, 2, 1, 1, affine_grid()},
      {"RoiAlign", "", 10, 3, 3, 1, 1, roi_align()},
      {"NonMaxSuppression", "", 10, 2, 5, 1, 1, non_max_suppression(), "on the host, between two parts of the plan"},
  };
  return rows;
}

}  // namespace lenslet
