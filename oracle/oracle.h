#pragma once
// Slow references in double precision, written from the ONNX specification and apart from ops/: what `lenslet verify`
// and the tests judge kernels by. Public types only.

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
  /// Of a result: what an error of each element is measured by. Empty: its own magnitude. A kernel's inputs are exact,
  /// and what it rounds is as large as the terms of its definition: of a sum the root of the sum of their squares,
  /// which is what terms of random sign add up to, or the sum where that is larger; of a function of something that is
  /// rounded, as much of that one's scale as the function's slope lets through.
  std::vector<double> scale = {};
};

/// Any layout and type (f16 and bf16 are decoded); an empty Tensor gives a left-out input.
Array from_tensor(const Tensor& tensor);
/// Format nchw; floating-point values are rounded, integers must fit.
Tensor to_tensor(const Array& array);
/// The root of the mean square of the finite values; 0 where there is none.
double rms(std::span<const double> values);

/// How far `got` is from `exact`, less what storing it explains: of f16 and bf16 the unit roundoff (2^-11, 2^-8)
/// of `exact`, or half the spacing of subnormals, and an infinity where `exact` is beyond the type's largest number. Of
/// other types |got - exact|. 0 for equal infinities and two NaN, infinite where only one of the two is NaN.
double error_beyond_rounding(double got, double exact, DType stored);

/// What an error of element i of a result is measured by: its scale, at least its magnitude, and at least 2^-100, below
/// which an intermediate result of float32 may be subnormal.
double scale_at(const Array& exact, std::size_t i);
/// error_beyond_rounding() of element i by scale_at(); of integers and bool any difference is infinite. A stated
/// tolerance bounds this.
double error_at(double got, const Array& exact, std::size_t i, DType stored);

/// The outputs of one operator, or nothing when there is no reference for it. `attributes` are normalised, as
/// Op::attributes() and StepInfo give them. Error(invalid_argument) when the inputs make no sense for the operator.
/// `reach`, of convolutions: how many pixels away an output may be whose terms a kernel rounds together with those of
/// this one (tile_reach); the scale is then the largest so far away, of filters whose taps are all as large.
std::optional<std::vector<Array>> run(std::string_view op, const AttributeList& attributes,
                                      std::span<const Array> inputs, std::int64_t reach = 0);

/// As a reach: of results whose scale nobody asks for. Convolutions then leave it out, which is half of their work.
inline constexpr std::int64_t no_scale = -1;
/// The reach of a convolution algorithm, by its name, or its configuration where that names another: Winograd's tiles
/// have 8 pixels in a row at most, and an FFT's 40. 0: each output is a sum of its own terms.
std::int64_t tile_reach(std::string_view algorithm);

}  // namespace lenslet::oracle
