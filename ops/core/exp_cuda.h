#pragma once
// e^x in fp32. CUDA's expf errs by 1.1 ulp, too much for an Exp that is a graph output. Double precision would be more
// exact but costs thirty times as much on GPUs with few fp64 units.

#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/cuda/host_device.h"

namespace lenslet::cuda {

/// e^x within 0.66 ulp for normal results (all floats tried on the host; the device gives the same bits, since all
/// operations are IEEE). Gradual underflow below -87.3, 0 below -103.97, +inf above 88.72; NaN stays NaN.
LENSLET_HOST_DEVICE inline float exp_f32(float x) {
  // Clamped: the result is 0 or inf beyond, and 2^n stays a product of two normal factors. Comparisons instead of fminf
  // and fmaxf, which turn NaN into a number.
  x = x > 89.0f ? 89.0f : x;
  x = x < -105.0f ? -105.0f : x;
  // n = x / ln 2, rounded: 1.5 * 2^23 leaves no bits below the point, and n in the low bits of the sum.
  constexpr float shifter = 0x1.8p23f;
  const float shifted = fmaf(x, 0x1.715476p+0f, shifter);
  const float n = shifted - shifter;
  // r = x - n ln 2 with ln 2 in two parts. The first step is exact: what is left is a multiple of 2^-25 below 1/2.
  constexpr float minus_ln2_low = 0x1.05c610p-29f;
  const float high = fmaf(n, -0x1.62e430p-1f, x), r = fmaf(n, minus_ln2_low, high);
  // e^r = 1 + r + r^2 q(r), |r| <= ln 2 / 2: q off by 6e-10 of e^r.
  float q = 1.99324945e-4f;
  q = fmaf(q, r, 1.39261840e-3f);
  q = fmaf(q, r, 8.33324622e-3f);
  q = fmaf(q, r, 4.16665561e-2f);
  q = fmaf(q, r, 1.66666672e-1f);
  q = fmaf(q, r, 0.5f);
  // The rounding errors of 1 + r and r are added to the last, small term: only the final sum rounds.
  const float sum = 1.0f + r;
  const float lost = fmaf(n, minus_ln2_low, (1.0f - sum) + high);
  const float y = sum + fmaf(r * r, q, lost);
  // 2^n as 2^(n/2) * 2^(n - n/2): n reaches 128 and -151, which one factor cannot hold.
  std::int32_t bits;
  std::memcpy(&bits, &shifted, sizeof bits);
  const std::int32_t exponent = (bits & 0x7fffff) - 0x400000, half = exponent >> 1;
  const std::int32_t factors[] = {(half + 127) * 0x800000, (exponent - half + 127) * 0x800000};
  float first, second;
  std::memcpy(&first, &factors[0], sizeof first);
  std::memcpy(&second, &factors[1], sizeof second);
  return y * first * second;
}

}  // namespace lenslet::cuda
