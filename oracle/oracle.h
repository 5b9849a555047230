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
};

/// Any layout and type (f16 and bf16 are decoded); an empty Tensor gives a left-out input.
Array from_tensor(const Tensor& tensor);
/// Format nchw; floating-point values are rounded, integers must fit.
Tensor to_tensor(const Array& array);
/// The root of the mean square of the finite values, which errors are measured by; 0 where there is none.
double rms(std::span<const double> values);

/// How far `got` is from `exact`, less what storing it explains: of f16 and bf16 the unit roundoff (2^-11, 2^-8)
/// of `exact`, or half the spacing of subnormals, and an infinity where `exact` is beyond the type's largest number. Of
/// other types |got - exact|. 0 for equal infinities and two NaN, infinite where only one of the two is NaN.
double error_beyond_rounding(double got, double exact, DType stored);

/// The outputs of one operator, or nothing when there is no reference for it. `attributes` are normalised, as
/// Op::attributes() and StepInfo give them. Error(invalid_argument) when the inputs make no sense for the operator.
std::optional<std::vector<Array>> run(std::string_view op, const AttributeList& attributes,
                                      std::span<const Array> inputs);

}  // namespace lenslet::oracle
