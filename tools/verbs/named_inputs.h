#pragma once
// --input [NAME=]FILE: tensors from files for a model's inputs.

#include <string>
#include <vector>

#include "lenslet/model.h"

namespace lenslet::tool {

/// One tensor for each input of the model, in its order. A text is NAME=FILE, or FILE for the next input without one;
/// FILE is .npy or .pb. Floats are converted to the input's type. Error(invalid_argument) for inputs missing, twice or
/// too many.
std::vector<Tensor> read_named_inputs(const Model& model, const std::vector<std::string>& texts);

}  // namespace lenslet::tool
