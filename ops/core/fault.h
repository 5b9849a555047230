#pragma once
// Error details from CUDA kernels that find invalid inputs: numbers beside the fixed text of BoundKernel::fault().

#include <cstdint>
#include <span>
#include <string>

#include "ops/core/kernel.h"

namespace lenslet {

/// Words at Context::fault. The first is nonzero after an error; the kernel defines the others. One thread of a kernel
/// writes them, or all threads write the same.
inline constexpr std::size_t fault_words = 12;
using FaultWords = std::span<const std::int32_t, fault_words>;

/// A BoundKernel with a fault() that adds such details.
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
