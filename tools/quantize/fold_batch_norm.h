#pragma once

#include "tools/quantize/onnx_file.h"

namespace lenslet::tool {

/// Folds each BatchNormalization into the Conv before it, in double, where nothing else reads the Conv.
void fold_batch_norm(OnnxFile& file);

}  // namespace lenslet::tool
