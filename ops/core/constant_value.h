#pragma once
// The value of a Constant node, in every form that ONNX has for it.

#include "lenslet/attributes.h"

namespace lenslet {

/// From its one attribute: value, value_float(s) or value_int(s). Error(unsupported) for strings and sparse tensors,
/// Error(invalid_model) when there is not exactly one, or one of another kind. Shares a tensor's memory.
Tensor constant_value(const AttributeList& attributes);

}  // namespace lenslet
