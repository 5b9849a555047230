#pragma once
// A TensorProto's elements, from whichever field they sit in, as a Tensor.

#include "lenslet/tensor.h"
#include "models/external_data.h"
#include "models/model_file.h"
#include "models/onnx_reader.h"

namespace lenslet {

struct TensorSource {
  ModelFile* file = nullptr;         ///< owner of the tensor's bytes; null: the bytes are complete and are copied
  ExternalData* external = nullptr;  ///< null: external data is refused
};

/// Error(invalid_model | unsupported | limit | io), without a context: the caller knows what the tensor is for.
Tensor to_tensor(const OnnxTensor& tensor, const TensorSource& source);

}  // namespace lenslet
