#pragma once
// ElementwiseChain: v = x, then v = f(v) or v = f(v, operand) for each function of a list, as one step.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "ops/core/activation.h"

// clang-format off
/// Functions of v alone beside the activations, by the names of their operators; Square is v * v.
#define LENSLET_CHAIN_UNARY(KIND) \
  KIND(Tanh) KIND(Abs) KIND(Neg) KIND(Exp) KIND(Sqrt) KIND(Reciprocal) KIND(Erf) KIND(Softplus)
/// Functions of v and an operand.
#define LENSLET_CHAIN_BINARY(KIND) \
  KIND(Add) KIND(Sub) KIND(Mul) KIND(Div) KIND(Max) KIND(Min) KIND(PRelu)
// clang-format on

namespace lenslet {

struct ChainFunction {
#define LENSLET_NAME(NAME) NAME,
  enum class Kind : std::uint8_t {
    activation,
    Square,
    ScaleShift,  ///< v * operand + next operand, with a single rounding
    LENSLET_CHAIN_UNARY(LENSLET_NAME) LENSLET_CHAIN_BINARY(LENSLET_NAME)
  };
#undef LENSLET_NAME
  Kind kind = Kind::activation;
  Activation::Kind activation = Activation::Kind::none;
  std::uint8_t inputs = 0;  ///< operands that it takes of the inputs; a binary function without any has the number a
  bool reversed = false;    ///< f(operand, v)
  float a = 0, b = 0;       ///< of the activation; the number
};

/// Functions of v and an operand are the last kinds; before them are those of v alone that operators compute, too.
constexpr bool is_binary(ChainFunction::Kind kind) { return kind >= ChainFunction::Kind::Add; }
constexpr bool is_unary(ChainFunction::Kind kind) { return kind > ChainFunction::Kind::ScaleShift && !is_binary(kind); }

inline constexpr std::size_t most_chain_functions = 8, most_chain_operands = 4;

struct Chain {
  int count = 0;
  std::array<ChainFunction, most_chain_functions> at{};
};

}  // namespace lenslet
