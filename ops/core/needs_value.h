#pragma once
// Output types that depend on the value of an input (the shape of a Reshape, the number of selected boxes).

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "ops/core/op.h"

namespace lenslet {

/// A set of inputs, one bit per index.
using InputMask = std::uint32_t;
/// The last bit stands for all further inputs (Concat has any number).
constexpr InputMask input_bit(std::size_t input) { return InputMask{1} << (input < 31 ? input : 31); }

/// Thrown by Op::infer when the types depend on inputs whose values are not known. Callers that can wait plan the node
/// once they are; to all others it is a plain Error(unsupported).
class NeedsValue : public Error {
 public:
  /// `name`: the first such input.
  NeedsValue(InputMask inputs, std::string_view name);
  InputMask inputs() const noexcept { return inputs_; }

 private:
  InputMask inputs_;
};

/// The value of input `index`, which is present. NeedsValue when it is not known.
const Tensor& known_value(std::span<const InputInfo> inputs, std::size_t index, std::string_view name);

}  // namespace lenslet
