#pragma once
// Types of outputs that follow from what an input holds (the target of a Reshape, how many boxes are left).

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "ops/core/op.h"

namespace lenslet {

/// Inputs by number, as bits.
using InputMask = std::uint32_t;
/// The last bit stands for all further inputs (Concat takes any number).
constexpr InputMask input_bit(std::size_t input) { return InputMask{1} << (input < 31 ? input : 31); }

/// Thrown by Op::infer: these inputs decide the types, and are not known. Who can wait for the run plans the node when
/// they are; for all others it is an Error(unsupported) as any.
class NeedsValue : public Error {
 public:
  /// `name`: of the first such input.
  NeedsValue(InputMask inputs, std::string_view name);
  InputMask inputs() const noexcept { return inputs_; }

 private:
  InputMask inputs_;
};

/// What input `index`, which is there, holds. NeedsValue when that is not known.
const Tensor& known_value(std::span<const InputInfo> inputs, std::size_t index, std::string_view name);

}  // namespace lenslet
