#pragma once
// Tensors as raw memory, for workspaces and prepared weights.

#include <cstddef>
#include <cstdint>
#include <span>

#include "lenslet/tensor.h"

namespace lenslet {

/// Uninitialised, 64-byte aligned. Error(limit) when out of memory.
inline Tensor tensor_of_bytes(std::size_t bytes) { return {DType::u8, {static_cast<std::int64_t>(bytes)}}; }

/// All stored bytes, including padded blocks and halo.
inline std::span<std::byte> bytes_of(Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data()), tensor.bytes()};
}

}  // namespace lenslet
