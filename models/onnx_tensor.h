#pragma once
// A TensorProto's elements, from whichever field they sit in, as a Tensor.

#include <memory>

#include "lenslet/tensor.h"
#include "models/external_data.h"
#include "models/onnx_reader.h"

namespace lenslet {

struct TensorSource {
  /// Keeps the file's bytes alive: raw data that is aligned for its type is then shared, not copied. Null: always
  /// copied.
  std::shared_ptr<const void> owner;
  ExternalData* external = nullptr;  ///< null: external data is refused
};

/// Error(invalid_model | unsupported | limit | io), without a context: the caller knows what the tensor is for.
Tensor to_tensor(const OnnxTensor& tensor, const TensorSource& source);

}  // namespace lenslet
