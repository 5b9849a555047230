#pragma once
// A convolution in numbers. ONNX Conv is cross-correlation:
//   y[n,k,p,q] = sum over c,r,s of x[n, c, p*stride_h - pad_top + r*dilation_h, q*stride_w - pad_left + s*dilation_w]
//                * w[k,c,r,s],  zero outside the image, c within the filter's group.

#include <array>
#include <cstdint>
#include <string>

#include "lenslet/tensor.h"
#include "ops/core/activation.h"
#include "ops/core/window.h"

namespace lenslet {

/// Max pooling of a convolution's outputs, as MaxPool: elements outside do not count, and each window has at least one
/// inside.
struct MaxWindows {
  std::int8_t size = 0;  ///< of both axes; 0: no pooling
  std::int8_t stride = 1;
  std::int8_t pad_top = 0, pad_left = 0, pad_bottom = 0, pad_right = 0;

  explicit operator bool() const { return size != 0; }
  friend bool operator==(const MaxWindows&, const MaxWindows&) = default;
};
/// 2x2, stride 2, no padding.
inline constexpr MaxWindows maxima_of_four{.size = 2, .stride = 2};

/// A convolution with resolved pads and output size; all in elements.
struct ConvProblem {
  std::int64_t n = 1, c = 1, h = 1, w = 1;  ///< input [n,c,h,w]
  std::int64_t k = 1, r = 1, s = 1;         ///< filters [k, c/groups, r, s]
  std::int64_t p = 1, q = 1;                ///< output [n,k,p,q]
  std::int64_t stride_h = 1, stride_w = 1;
  std::int64_t dilation_h = 1, dilation_w = 1;
  std::int64_t pad_top = 0, pad_left = 0, pad_bottom = 0, pad_right = 0;
  std::int64_t groups = 1;
  bool bias = false;      ///< [k], added first
  bool residual = false;  ///< [n,k,p,q] in the output's layout, added before the activation
  Activation activation;
  DType storage = DType::f32;           ///< of residual and y
  DType x_storage = DType::f32;         ///< of x: the same, or float32 where a network's input is read directly
  DType filter_type = DType::f32;       ///< of the filters as loaded
  DType accumulator_type = DType::f32;  ///< of the sums, and of the bias
  bool requantized = false;             ///< y is stored by a Requantization, not converted
  // Requantized: the rest of Epilogue::Requantize.
  std::int32_t x_zero_point = 0, y_zero_point = 0, y_least = -128, y_most = 255;
  MaxWindows max_pool;  ///< fused pooling: stored are [n,k,stored_p,stored_q], no residual

  std::int64_t group_c() const { return c / groups; }
  std::int64_t group_k() const { return k / groups; }
  bool padded() const { return pad_top != 0 || pad_left != 0 || pad_bottom != 0 || pad_right != 0; }
  std::int64_t stored_p() const { return max_pool ? windows(p + max_pool.pad_top + max_pool.pad_bottom) : p; }
  std::int64_t stored_q() const { return max_pool ? windows(q + max_pool.pad_left + max_pool.pad_right) : q; }
  double flops() const;  ///< 2*n*k*p*q*(c/groups)*r*s
  double bytes() const;  ///< input + filters + output (+ residual), each once, as stored
  /// "1x64x56x56 -> 64, 3x3 s1 p1 g1 +bias +relu"
  std::string str() const;
  /// The same problem on an explicitly padded input.
  ConvProblem with_explicit_padding() const;

  friend bool operator==(const ConvProblem&, const ConvProblem&) = default;

 private:
  std::int64_t windows(std::int64_t length) const { return (length - max_pool.size) / max_pool.stride + 1; }
};

/// Conv's attributes before the input size is known; lists of spatial rank 1 or 2 (1-D: the w ones).
struct ConvGeometry {
  std::array<std::int64_t, 2> stride{1, 1}, dilation{1, 1};  ///< h, w
  std::array<std::int64_t, 4> pads{0, 0, 0, 0};              ///< top, left, bottom, right
  AutoPad auto_pad = AutoPad::notset;
  std::int64_t groups = 1;
};

/// The one function that resolves pads and computes P and Q. `x` [N,C,H,W], `filter` [K,C/groups,R,S]; 1-D without H
/// and R. Error(invalid_model) names sizes that contradict each other, Error(unsupported) negative pads, Error(limit)
/// sizes that overflow. Strides past the padded input and dilations of a single tap are clamped, which changes nothing.
ConvProblem resolve_conv(const Shape& x, const Shape& filter, const ConvGeometry& geometry);

}  // namespace lenslet
