#pragma once
// What the CPU's kernels of attention heads share: products of packed matrices, and the places of scratch.

#include <cstdint>

#include "ops/gemm/gemm.h"

namespace lenslet {

inline constexpr std::int64_t line_floats = 16;  ///< of a line of the cache

/// `floats` rounded up to whole lines.
inline std::int64_t whole_lines(std::int64_t floats) { return (floats + line_floats - 1) / line_floats * line_floats; }

/// c [m,n] = a [m,k] times b, which pack_b has packed; lda and ldc from row to row.
inline void multiply_packed(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t lda,
                            const float* b, float* c, std::int64_t ldc) {
  Gemm call;
  call.m = m, call.n = n, call.k = k;
  call.a.base = a, call.a.stride = lda;
  call.b = b;
  call.c = c, call.ldc = ldc;
  gemm_serial(call);
}

}  // namespace lenslet
