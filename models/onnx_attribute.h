#pragma once
// AttributeProtos as an AttributeList.

#include "lenslet/attributes.h"
#include "models/onnx_reader.h"
#include "models/onnx_tensor.h"

namespace lenslet {

/// All attributes of a node. Error(invalid_model) for a doubled name or a value that is not of the declared type,
/// Error(unsupported) for subgraphs, lists of tensors, sparse tensors, types and references to function attributes;
/// both name the attribute.
AttributeList to_attributes(const OnnxNode& node, const TensorSource& source);

}  // namespace lenslet
