#pragma once
// A layer as an ONNX file in memory.

#include <string>

#include "lenslet/check.h"

namespace lenslet::check {

/// One node, named after its operator, whose inputs from `options.run_inputs` on are initializers. Error(unsupported)
/// for anything that a file cannot hold.
std::string layer_model(std::string_view op, const AttributeList& attributes, const std::vector<Tensor>& inputs,
                        const LayerOptions& options);

}  // namespace lenslet::check
