#pragma once
// Tensors in files: NumPy's .npy and ONNX's serialized TensorProto (.pb); atomic file writes.

#include <cstddef>
#include <filesystem>
#include <span>

#include "lenslet/export.h"
#include "lenslet/tensor.h"

namespace lenslet {

/// NumPy format 1.0/2.0, C or Fortran order, little-endian; Error(io | unsupported | limit).
LENSLET_API Tensor read_npy(const std::filesystem::path& file);
/// Format 1.0, C order; an nhwc tensor is written in NCHW order. f16 is '<f2'; bf16 is refused. A tensor without
/// elements (a dimension of 0) is a header alone; empty() is Error(invalid_argument) and creates no file. Written as by
/// write_file.
LENSLET_API void write_npy(const std::filesystem::path& file, const Tensor& tensor);
/// A serialized onnx TensorProto, as in the ONNX backend tests. `name` (optional) receives the tensor's name.
LENSLET_API Tensor read_tensor_pb(const std::filesystem::path& file, std::string* name = nullptr);

/// Writes a temporary file beside `file` under a unique name and renames it once complete: no reader sees half a file,
/// and an error changes nothing. Follows and keeps symlinks; keeps the permissions of a replaced file. Does not sync to
/// disk: a power cut may lose the file. Writes directly to anything but a regular file (a pipe, a device). Error(io).
LENSLET_API void write_file(const std::filesystem::path& file, std::span<const std::byte> bytes);

}  // namespace lenslet
