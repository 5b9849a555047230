// The operators of movement.

#include "ops/families.h"

namespace lenslet {

// Each in the file of its name; expand.cpp and depth_to_space.cpp have both of their kind.
OpParts pad(), transpose(), concat(), split(), slice(), gather(), expand(), tile();
OpParts depth_to_space(), layout_convert();

std::span<const OpRow> movement_rows() {
  // name, domain, first version read, inputs min..max, outputs min..max, parts, notes
  static const OpRow rows[] = {
      {"Pad", "", 2, 1, 4, 1, 1, pad(), "pads known before the run"},
      {"Transpose", "", 1, 1, 1, 1, 1, transpose()},
      {"Concat", "", 4, 1, any_number, 1, 1, concat()},
      {"Split", "", 2, 1, 2, 1, any_number, split(), "sizes known before the run"},
      {"Slice", "", 1, 1, 5, 1, 1, slice(), "starts, ends, axes, steps known before the run"},
      {"Gather", "", 1, 2, 2, 1, 1, gather(), "on CUDA indices known before the run"},
      {"Expand", "", 8, 2, 2, 1, 1, expand(), "shape known before the run"},
      {"Tile", "", 6, 2, 2, 1, 1, tile(), "repeats known before the run"},
      {"DepthToSpace", "", 1, 1, 1, 1, 1, depth_to_space()},
      {"SpaceToDepth", "", 1, 1, 1, 1, 1, depth_to_space()},
      {"LayoutConvert", own, 1, 1, 1, 1, 1, layout_convert(), "4-D"},
  };
  return rows;
}

}  // namespace lenslet
