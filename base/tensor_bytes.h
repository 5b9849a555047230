#pragma once
// Tensors as plain memory: what workspaces and prepared weights lie in.

#include <cstddef>
#include <cstdint>
#include <span>

#include "lenslet/tensor.h"

namespace lenslet {

/// Not initialised, 64-byte aligned. Error(limit) when memory is short.
inline Tensor tensor_of_bytes(std::size_t bytes) { return {DType::u8, {static_cast<std::int64_t>(bytes)}}; }

/// As stored: padded blocks and halo included.
inline std::span<std::byte> bytes_of(Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data()), tensor.bytes()};
}

}  // namespace lenslet
