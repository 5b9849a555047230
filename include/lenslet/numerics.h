#pragma once
// The arithmetic that a plan may use.

#include <cstdint>
#include <string>
#include <string_view>

#include "lenslet/export.h"
#include "lenslet/tensor.h"

namespace lenslet {

/// What values are stored as between steps, what products multiply, what their sums are kept in. A kernel computes at
/// least as exactly as asked for, never less. "fp16" and "bf16" store what products of weights make and read in 16 bit;
/// what has no kernel for it, or is wanted at its full range, stays float32 (Softmax, the last Gemm).
struct Numerics {
  enum class Multiply : std::uint8_t {
    fp32,  ///< IEEE single precision
    tf32,  ///< operands may be rounded to 10 mantissa bits (NVIDIA's TensorFloat-32)
    fp16,  ///< operands are IEEE half precision
    bf16,  ///< operands are bfloat16
  };
  DType storage = DType::f32;
  Multiply multiply = Multiply::fp32;
  DType accumulate = DType::f32;

  friend bool operator==(const Numerics&, const Numerics&) = default;
};

/// "fp32", "tf32", "fp16", "bf16".
LENSLET_API std::string_view to_string(const Numerics& numerics) noexcept;
/// The reverse. Error(invalid_argument) names the known ones.
LENSLET_API Numerics parse_numerics(std::string_view name);

}  // namespace lenslet
