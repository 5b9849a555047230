#pragma once

#include "tools/quantize/onnx_file.h"

namespace lenslet::tool {

inline constexpr std::int64_t least_opset = 13;  ///< the first with scales per channel
inline constexpr std::int64_t most_opset = 21;

/// Makes Dropout an Identity, and brings a file below `least_opset` to it. Error(unsupported) names a node that cannot
/// be brought there, or an opset above `most_opset`.
void raise_opset(OnnxFile& file);

}  // namespace lenslet::tool
