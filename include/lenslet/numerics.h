#pragma once
// The arithmetic that a plan may use.

#include <cstdint>
#include <string>
#include <string_view>

#include "lenslet/export.h"
#include "lenslet/tensor.h"

namespace lenslet {

/// Types of stored values, of the operands of products, and of accumulators. A kernel is at least as precise as
/// requested. "fp16" and "bf16" store the inputs and outputs of products with weights in 16 bits. Operators without
/// such a kernel, or that need the full range, stay float32 (Softmax, the last Gemm).
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
/// The inverse. Error(invalid_argument) lists the known names.
LENSLET_API Numerics parse_numerics(std::string_view name);

}  // namespace lenslet
