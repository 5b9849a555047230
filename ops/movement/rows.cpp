// The operators of movement.

#include "ops/families.h"

namespace lenslet {

// Each in the file of its name; gather.cpp, scatter.cpp, band.cpp, expand.cpp and depth_to_space.cpp have all of their
// kind.
OpParts pad(), transpose(), concat(), split(), slice(), expand(), tile(), center_crop_pad(), compress();
OpParts gather(), gather_elements(), gather_nd(), scatter_elements(), scatter_nd(), one_hot(), trilu(), eye_like();
OpParts depth_to_space(), reverse_sequence(), layout_convert();

std::span<const OpRow> movement_rows() {
  // name, domain, first version read, inputs min..max, outputs min..max, parts, notes
  static const OpRow rows[] = {
      {"Pad", "", 2, 1, 4, 1, 1, pad(), "pads known before the run"},
      {"Transpose", "", 1, 1, 1, 1, 1, transpose()},
      {"Concat", "", 4, 1, any_number, 1, 1, concat()},
      {"Split", "", 2, 1, 2, 1, any_number, split(), "sizes known before the run"},
      {"Slice", "", 1, 1, 5, 1, 1, slice(), "starts, ends, axes, steps known before the run"},
      {"Gather", "", 1, 2, 2, 1, 1, gather(), "on CUDA indices known before the run"},
      {"GatherElements", "", 11, 2, 2, 1, 1, gather_elements(), "on CUDA indices known before the run"},
      {"GatherND", "", 11, 2, 2, 1, 1, gather_nd(), "on CUDA indices known before the run"},
      {"Scatter", "", 9, 3, 3, 1, 1, scatter_elements(), "as ScatterElements"},
      {"ScatterElements", "", 11, 3, 3, 1, 1, scatter_elements(),
       "on CUDA indices known before the run; of equal indices the last one counts; reductions of numbers but 16-bit "
       "floats"},
      {"ScatterND", "", 11, 3, 3, 1, 1, scatter_nd(), "as ScatterElements"},
      {"OneHot", "", 9, 3, 3, 1, 1, one_hot(), "depth known before the run"},
      {"Compress", "", 9, 2, 2, 1, 1, compress(), "condition known before the run"},
      {"Trilu", "", 14, 1, 2, 1, 1, trilu(), "k known before the run"},
      {"EyeLike", "", 9, 1, 1, 1, 1, eye_like()},
      {"CenterCropPad", "", 18, 2, 2, 1, 1, center_crop_pad(), "shape known before the run"},
      {"Expand", "", 8, 2, 2, 1, 1, expand(), "shape known before the run"},
      {"Tile", "", 6, 2, 2, 1, 1, tile(), "repeats known before the run"},
      {"DepthToSpace", "", 1, 1, 1, 1, 1, depth_to_space()},
      {"SpaceToDepth", "", 1, 1, 1, 1, 1, depth_to_space()},
      {"ReverseSequence", "", 10, 2, 2, 1, 1, reverse_sequence(), "sequence_lens known before the run"},
      {"LayoutConvert", own, 1, 1, 1, 1, 1, layout_convert(), "4-D"},
  };
  return rows;
}

}  // namespace lenslet
