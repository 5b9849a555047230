#pragma once
// What is wrong with the inputs of a CUDA kernel that has found it, in more words than one text can be: with numbers.

#include <cstdint>
#include <span>
#include <string>

#include "ops/core/kernel.h"

namespace lenslet {

/// What Context::fault points at. The first is not 0 where something is wrong; what the others say, the kernel that
/// writes them knows. One thread of a kernel writes them, or all write the same.
inline constexpr std::size_t fault_words = 12;
using FaultWords = std::span<const std::int32_t, fault_words>;

/// A BoundKernel, whose fault() is not empty, that tells more than that.
class TellsFault {
 public:
  virtual ~TellsFault() = default;
  virtual std::string fault_of(FaultWords words) const = 0;
};

inline std::string fault_of(const BoundKernel& kernel, FaultWords words) {
  const auto* const tells = dynamic_cast<const TellsFault*>(&kernel);
  return tells != nullptr ? tells->fault_of(words) : kernel.fault();
}

}  // namespace lenslet
