#pragma once
// The value of a Constant node in all of ONNX's forms.

#include "lenslet/attributes.h"

namespace lenslet {

/// From its single attribute: value, value_float(s) or value_int(s). Error(unsupported) for strings and sparse tensors,
/// Error(invalid_model) for another number or kind of attributes. Shares a tensor's memory.
Tensor constant_value(const AttributeList& attributes);

}  // namespace lenslet
