// The operators of movement.

#include "ops/families.h"

namespace lenslet {

// Each in the file of its name; gather.cpp, scatter.cpp, band.cpp, expand.cpp and depth_to_space.cpp have several.
OpParts pad(), transpose(), concat(), split(), slice(), expand(), tile(), center_crop_pad(), compress();
OpParts gather(), gather_elements(), gather_nd(), scatter_elements(), scatter_nd(), one_hot(), trilu(), eye_like();
OpParts depth_to_space(), channel_shuffle(), reverse_sequence(), non_zero(), layout_convert();

std::span<const OpRow> movement_rows() {
  // name, domain, first version read, inputs min..max, outputs min..max, parts, notes
  static const OpRow rows[] = {
      {"Pad", "", 2, 1, 4, 1, 1, pad()},
      {"Transpose", "", 1, 1, 1, 1, 1, transpose()},
      {"Concat", "", 4, 1, any_number, 1, 1, concat()},
      {"Split", "", 2, 1, 2, 1, any_number, split()},
      {"Slice", "", 1, 1, 5, 1, 1, slice()},
      {"Gather", "", 1, 2, 2, 1, 1, gather()},
      {"GatherElements", "", 11, 2, 2, 1, 1, gather_elements()},
      {"GatherND", "", 11, 2, 2, 1, 1, gather_nd()},
      {"Scatter", "", 9, 3, 3, 1, 1, scatter_elements(), "as ScatterElements"},
      {"ScatterElements", "", 11, 3, 3, 1, 1, scatter_elements(),
       "of equal indices the last one counts; reductions of numbers but 16-bit "
       "floats"},
      {"ScatterND", "", 11, 3, 3, 1, 1, scatter_nd(), "as ScatterElements"},
      {"OneHot", "", 9, 3, 3, 1, 1, one_hot()},
      {"Compress", "", 9, 2, 2, 1, 1, compress()},
      {"Trilu", "", 14, 1, 2, 1, 1, trilu()},
      {"EyeLike", "", 9, 1, 1, 1, 1, eye_like()},
      {"CenterCropPad", "", 18, 2, 2, 1, 1, center_crop_pad()},
      {"Expand", "", 8, 2, 2, 1, 1, expand()},
      {"Tile", "", 6, 2, 2, 1, 1, tile()},
      {"DepthToSpace", "", 1, 1, 1, 1, 1, depth_to_space()},
      {"SpaceToDepth", "", 1, 1, 1, 1, 1, depth_to_space()},
      {"ReverseSequence", "", 10, 2, 2, 1, 1, reverse_sequence()},
      {"NonZero", "", 9, 1, 1, 1, 1, non_zero(), "on the host, between two parts of the plan"},
      {"ChannelShuffle", own, never, 1, any_number, 1, any_number, channel_shuffle(), "4-D"},
      {"LayoutConvert", own, never, 1, 1, 1, 1, layout_convert(), "4-D"},
  };
  return rows;
}

}  // namespace lenslet
