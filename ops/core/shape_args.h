#pragma once
// Small integer arguments (axes, shapes, starts) that come as attributes in some opsets and as inputs in others.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "ops/core/op.h"

namespace lenslet {

/// At most one integer per axis: no heap memory, so that kernels can use it.
struct AxisInts {
  std::array<std::int64_t, Shape::max_rank> values{};
  int size = 0;

  AxisInts() = default;
  /// Error(limit) for more than Shape::max_rank.
  explicit AxisInts(std::span<const std::int64_t> list, std::string_view name);
  std::int64_t operator[](int i) const { return values[static_cast<std::size_t>(i)]; }
  std::span<const std::int64_t> span() const { return {values.data(), static_cast<std::size_t>(size)}; }
};

/// The integers of a scalar or 1-D int32 or int64 tensor. Error(invalid_model) for another rank or type.
AxisInts axis_ints(const Tensor& tensor, std::string_view name);

/// The integers of input `index`; nothing when it was left out. NeedsValue when they are unknown, since shapes depend
/// on them.
std::optional<AxisInts> constant_axis_ints(std::span<const InputInfo> inputs, std::size_t index, std::string_view name);
/// The same for a required input.
AxisInts required_axis_ints(std::span<const InputInfo> inputs, std::size_t index, std::string_view name);

/// The same, of any length.
std::optional<std::vector<std::int64_t>> constant_integers(std::span<const InputInfo> inputs, std::size_t index,
                                                           std::string_view name);

/// The named axes of a rank; negative ones count from the end. Error(invalid_model) outside or named twice.
std::array<bool, Shape::max_rank> axis_mask(std::span<const std::int64_t> axes, int rank);

/// a * b for dimensions (both >= 0). Error(limit) when it overflows.
std::int64_t multiply_dims(std::int64_t a, std::int64_t b);
/// a + b for dimensions (both >= 0). Error(limit) when it overflows.
std::int64_t add_dims(std::int64_t a, std::int64_t b);

}  // namespace lenslet
