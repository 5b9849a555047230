#pragma once
// Uniform errors for unsupported element types and shapes, for shape inference of operators.

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "ops/core/op.h"

namespace lenslet {

/// Error(unsupported) "WHAT has element type float16 (supported: float32, int64)" unless `dtype` is in `allowed`.
void require_dtype(std::string_view what, DType dtype, std::initializer_list<DType> allowed);

/// Error(invalid_model) unless all present inputs have the type of input 0.
void require_equal_dtypes(std::span<const InputInfo> inputs);

/// True if optional input `i` is given. Works in inference and in a run.
inline bool present(std::span<const InputInfo> inputs, std::size_t i) { return i < inputs.size() && inputs[i].present; }
inline bool present(std::span<const Tensor> inputs, std::size_t i) { return i < inputs.size() && !inputs[i].empty(); }

/// Type of required input `index`. Error(invalid_model) names it when it is missing.
const TensorType& required_input(std::span<const InputInfo> inputs, std::size_t index, std::string_view name);

/// Error(invalid_model) "WHAT has shape [2,3], expected [3]" unless equal.
void require_shape(std::string_view what, const Shape& shape, const Shape& expected);

/// Error(unsupported) "WHAT has shape [2,3] (supported: rank 3 to 5)" outside that range.
void require_rank(std::string_view what, const Shape& shape, int least, int most);

/// `axis` counted from the front, in [0, rank); negative ones count from the end. Error(invalid_model) outside.
int resolve_axis(std::int64_t axis, int rank);

}  // namespace lenslet
