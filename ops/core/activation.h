#pragma once
// Activations that convolutions and elementwise ops apply to their result.

#include <string>
#include <string_view>

#include "base/cuda/host_device.h"
#include "ops/core/activation_kinds.h"

namespace lenslet {

struct Activation {
  enum class Kind { LENSLET_ACTIVATIONS(LENSLET_ACTIVATION_NAME) };
  Kind kind = Kind::none;
  float alpha = 0, beta = 0;

  friend bool operator==(const Activation&, const Activation&) = default;
};

/// True for none, relu and clip: limits, so that a kernel needs no branch.
LENSLET_HOST_DEVICE constexpr bool is_clamp(Activation::Kind kind) {
  return kind == Activation::Kind::none || kind == Activation::Kind::relu || kind == Activation::Kind::clip;
}

/// "relu", "clip" ...
std::string_view to_string(Activation::Kind kind) noexcept;
/// The reverse. Error(invalid_model) for any other name.
Activation::Kind parse_activation_kind(std::string_view name);
/// "clip(0,6)"
std::string to_string(const Activation& activation);

/// In double, by the definition: for reference kernels.
double apply(const Activation& activation, double x);

}  // namespace lenslet
