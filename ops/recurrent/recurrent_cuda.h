#pragma once
// The steps of LSTM, GRU and RNN on CUDA. Plain C++: also included without CUDA.

#include <cstdint>

#include "ops/recurrent/recurrent.h"

namespace lenslet::cuda {

struct Context;

/// All pointers are device memory; null: left out.
struct RecurrentCall {
  const float* gates = nullptr;  ///< X times W: [x_row()][all_columns()]
  const float *r = nullptr, *b = nullptr, *initial_h = nullptr, *initial_c = nullptr, *p = nullptr;
  const std::int32_t* lengths = nullptr;  ///< where there is a context.fault, one outside [0, seq] is told there
  float *y = nullptr, *y_h = nullptr, *y_c = nullptr;
  float* states = nullptr;  ///< recurrent_state_floats(), arbitrary
};

inline constexpr std::int64_t most_hidden = 1 << 18;
constexpr std::int64_t recurrent_state_floats(const RecurrentProblem& q) {
  return 4 * q.directions * q.batch * q.hidden;
}

/// Queues one kernel per step, two for a GRU whose reset gate comes before the product. hidden <= most_hidden.
void recurrent_steps(const Context& context, const RecurrentProblem& problem, const RecurrentCall& call);

}  // namespace lenslet::cuda
