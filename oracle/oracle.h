#pragma once
// Slow double-precision references, written from the ONNX specification and independent of ops/. `lenslet verify` and
// the tests check kernels against them. Public types only.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "lenslet/attributes.h"
#include "lenslet/tensor.h"

namespace lenslet::oracle {

/// A tensor with its elements widened to double, row-major in the order of its shape (N, C, H, W). Integers beyond
/// 2^53 are rounded. Results are not rounded to `dtype`, except where the operator is defined by that rounding (Cast).
struct Array {
  Shape shape;
  std::vector<double> values;
  DType dtype = DType::f32;
  bool present = true;  ///< false: an optional input that was left out
  /// For results: the scale that each element's error is relative to; empty: its own magnitude. A kernel's inputs are
  /// exact, and its roundings are as large as the terms of the definition. For a sum it is the root of the sum of their
  /// squares (the expected sum at random signs), or the sum if larger. For a function of a rounded value it is that
  /// value's scale times the function's slope.
  std::vector<double> scale = {};
};

/// Any layout and type (f16 and bf16 are decoded); an empty Tensor gives a left-out input.
Array from_tensor(const Tensor& tensor);
/// Format nchw; floating-point values are rounded, integers must fit.
Tensor to_tensor(const Array& array);
/// The root of the mean square of the finite values; 0 where there is none.
double rms(std::span<const double> values);

/// Distance of `got` from `exact` beyond the rounding of storage. For f16 and bf16 that rounding is the unit roundoff
/// (2^-11, 2^-8) of `exact`, or half the spacing of subnormals; infinity is right if `exact` exceeds the type's
/// maximum. For other types |got - exact|. 0 for equal infinities and two NaN, infinite where only one of the two is
/// NaN.
double error_beyond_rounding(double got, double exact, DType stored);

/// The scale that element i's error is relative to: at least its magnitude, and at least 2^-100, below which float32
/// intermediates may be subnormal.
double scale_at(const Array& exact, std::size_t i);
/// error_beyond_rounding() of element i divided by scale_at(); for integers and bool any difference is infinite. Stated
/// tolerances bound this.
double error_at(double got, const Array& exact, std::size_t i, DType stored);

/// The outputs of one operator, or nullopt if it has no reference. `attributes` are normalised, as in Op::attributes()
/// and StepInfo. Error(invalid_argument) for inputs that do not fit the operator. `reach`, for convolutions: the
/// distance in pixels of outputs whose terms a kernel rounds together with this one's (tile_reach). The scale is then
/// the largest within that distance, with all taps of a filter equally large.
std::optional<std::vector<Array>> run(std::string_view op, const AttributeList& attributes,
                                      std::span<const Array> inputs, std::int64_t reach = 0);

/// A reach that requests no scale, which saves convolutions half of their work.
inline constexpr std::int64_t no_scale = -1;
/// The reach of a convolution algorithm, by its name, or by its configuration if that names another: Winograd tiles are
/// at most 8 pixels wide, FFT tiles 40. 0: each output sums only its own terms.
std::int64_t tile_reach(std::string_view algorithm);

}  // namespace lenslet::oracle
