#include "ops/core/activation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace lenslet {

std::string_view to_string(Activation::Kind kind) noexcept {
  switch (kind) {
    case Activation::Kind::none:
      return "none";
    case Activation::Kind::relu:
      return "relu";
    case Activation::Kind::clip:
      return "clip";
    case Activation::Kind::leaky_relu:
      return "leaky_relu";
    case Activation::Kind::sigmoid:
      return "sigmoid";
    case Activation::Kind::silu:
      return "silu";
    case Activation::Kind::hard_swish:
      return "hard_swish";
    case Activation::Kind::hard_sigmoid:
      return "hard_sigmoid";
  }
  return "?";
}

std::string to_string(const Activation& activation) {
  const std::string name(to_string(activation.kind));
  switch (activation.kind) {
    case Activation::Kind::clip:
    case Activation::Kind::hard_swish:
    case Activation::Kind::hard_sigmoid:
      return fmt::format("{}({:g},{:g})", name, activation.alpha, activation.beta);
    case Activation::Kind::leaky_relu:
      return fmt::format("{}({:g})", name, activation.alpha);
    case Activation::Kind::none:
    case Activation::Kind::relu:
    case Activation::Kind::sigmoid:
    case Activation::Kind::silu:
      break;
  }
  return name;
}

double apply(const Activation& activation, double x) {
  const double alpha = activation.alpha;
  const double beta = activation.beta;
  // std::max(x, 0.0) and std::clamp return their first argument when it is NaN: NaN stays NaN everywhere.
  switch (activation.kind) {
    case Activation::Kind::none:
      return x;
    case Activation::Kind::relu:
      return std::max(x, 0.0);
    case Activation::Kind::clip:
      return std::min(std::max(x, alpha), beta);
    case Activation::Kind::leaky_relu:
      return x < 0 ? alpha * x : x;
    case Activation::Kind::sigmoid:
      return 1 / (1 + std::exp(-x));
    case Activation::Kind::silu:
      // -inf * 0 would be NaN; the limit is 0.
      return x == -INFINITY ? 0.0 : x / (1 + std::exp(-x));
    case Activation::Kind::hard_swish:
      return x * std::min(std::max(x * alpha + beta, 0.0), 1.0);
    case Activation::Kind::hard_sigmoid:
      return std::min(std::max(x * alpha + beta, 0.0), 1.0);
  }
  return x;
}

}  // namespace lenslet
