#pragma once
// Tensors in files: NumPy's .npy and ONNX's serialized TensorProto (.pb). And how files are written.

#include <cstddef>
#include <filesystem>
#include <span>

#include "lenslet/export.h"
#include "lenslet/tensor.h"

namespace lenslet {

/// NumPy format 1.0/2.0, C or Fortran order, little-endian; Error(io | unsupported | limit).
LENSLET_API Tensor read_npy(const std::filesystem::path& file);
/// Format 1.0, C order; an nhwc tensor is written in NCHW order. f16 is '<f2'; bf16 is refused. A tensor without
/// elements (a dimension of 0) is a header alone; one that is empty() is Error(invalid_argument), and no file is made.
/// Written as write_file does.
LENSLET_API void write_npy(const std::filesystem::path& file, const Tensor& tensor);
/// A serialized onnx TensorProto, as in the ONNX backend tests. `name` (optional) receives the tensor's name.
LENSLET_API Tensor read_tensor_pb(const std::filesystem::path& file, std::string* name = nullptr);

/// Writes a new file beside `file`, under a name that no other process takes, which takes the name `file` when it is
/// complete: nobody reads half of it, and an error leaves everything as it was. Symlinks stay and are followed; the
/// permissions of a file that is replaced stay. It is not forced to the disk: a power cut may lose it. What is no
/// regular file (a pipe, a device) is written to directly. Error(io).
LENSLET_API void write_file(const std::filesystem::path& file, std::span<const std::byte> bytes);

}  // namespace lenslet
