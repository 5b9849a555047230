#pragma once
// Activations that convolutions and elementwise ops apply to their result.

#include <string>
#include <string_view>

namespace lenslet {

struct Activation {
  enum class Kind {
    none,
    relu,          ///< max(x, 0)
    clip,          ///< min(max(x, alpha), beta)
    leaky_relu,    ///< x < 0 ? alpha * x : x
    sigmoid,       ///< 1 / (1 + exp(-x))
    silu,          ///< x * sigmoid(x)
    hard_swish,    ///< x * min(max(x * alpha + beta, 0), 1); ONNX HardSwish: alpha = 1/6, beta = 1/2
    hard_sigmoid,  ///< min(max(x * alpha + beta, 0), 1)
  };
  Kind kind = Kind::none;
  float alpha = 0, beta = 0;

  friend bool operator==(const Activation&, const Activation&) = default;
};

/// "relu", "clip" ...
std::string_view to_string(Activation::Kind kind) noexcept;
/// "clip(0,6)"
std::string to_string(const Activation& activation);

/// In double, as the definition reads: for reference kernels.
double apply(const Activation& activation, double x);

}  // namespace lenslet
