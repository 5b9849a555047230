#pragma once
// Tensors whose values are computed without reading memory.

#include <cstddef>
#include <cstdint>
#include <span>

#include "lenslet/tensor.h"

namespace lenslet::cuda {

struct Context;

/// Writes `count` elements of 1, 2, 4 or 8 bytes with the low bytes of `bits`; `to` is 16-byte aligned.
void fill(const Context& context, std::size_t element_bytes, std::int64_t count, std::uint64_t bits, void* to);

/// Writes these values, at most 8 (a tensor's dimensions).
void store(const Context& context, std::span<const std::int64_t> values, std::int64_t* to);

/// Element i is start + i * delta: integers wrap around, floats are computed in double and rounded once to T. T is
/// float, double, std::int32_t or std::int64_t.
template <typename T>
void fill_range(const Context& context, std::int64_t count, T start, T delta, T* to);

}  // namespace lenslet::cuda
