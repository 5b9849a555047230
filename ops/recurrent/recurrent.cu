#include "base/cuda/launch.h"
#include "ops/recurrent/recurrent_cuda.h"

namespace lenslet::cuda {
namespace {

constexpr int warps = 4;  // of a block, a hidden unit each
constexpr unsigned all_lanes = 0xFFFFFFFFU;
/// Batch entries per read of R by a warp.
constexpr int most_entries = 4;

/// A step's operands. States are laid out by state_row().
struct Step {
  std::int64_t t = 0;                      ///< of the forward direction; the other one is at seq - 1 - t
  const float *h = nullptr, *c = nullptr;  ///< before the step; null: 0
  float *next_h = nullptr, *next_c = nullptr;
  float* scaled = nullptr;  ///< of GRU, reset before the product: the state times the reset gate, then
  float* update = nullptr;  ///< the update gate between the two kernels
  int* fault = nullptr;
};

template <UnaryKind... kinds>
__device__ float one_of(const UnaryFunction& f, float x) {
  float y = x;
  (void)((f.kind == kinds && ((y = Unary<kinds, float>{f.a, f.b}(x)), true)) || ...);
  return y;
}
__device__ float apply(const CellFunction& function, float x) {
  using enum UnaryKind;
  const float y = one_of<Sigmoid, Tanh, Relu, LeakyRelu, ThresholdedRelu, HardSigmoid, Elu, Softsign, Softplus>(
      function.f, function.before * x);
  return function.after * y + function.offset;
}

/// One hidden unit of one batch entry in one direction.
struct Place {
  const RecurrentProblem& q;
  const RecurrentCall& call;
  const Step& step;
  int direction, j;
  std::int64_t b;

  __device__ std::int64_t time() const { return q.backwards(direction) ? q.seq - 1 - step.t : step.t; }
  __device__ std::int64_t state() const { return q.state_row(direction, b) * q.hidden + j; }
  __device__ std::int64_t length() const {
    if (call.lengths == nullptr) return q.seq;
    const std::int64_t length = call.lengths[b];
    if (length >= 0 && length <= q.seq) return length;
    if (step.fault != nullptr) *step.fault = 1;
    return 0;
  }
  /// A gate's parts from x and from the product with R, each with its bias.
  __device__ float of_x(int gate) const {
    const std::int64_t column = gate * q.hidden + j;
    const float x = call.gates[q.x_row(time(), b) * q.all_columns() + direction * q.columns() + column];
    return call.b == nullptr ? x : x + call.b[2 * direction * q.columns() + column];
  }
  __device__ float of_r(int gate, float sum) const {
    const std::int64_t column = (2 * direction + 1) * q.columns() + gate * q.hidden + j;
    return call.b == nullptr ? sum : sum + call.b[column];
  }
  __device__ float peephole(int gate, float c) const {
    return call.p == nullptr ? 0.0F : call.p[(direction * 3 + gate) * q.hidden + j] * c;
  }
  __device__ float activated(int function, float x) const {
    if (q.clips) x = x < -q.clip ? -q.clip : x > q.clip ? q.clip : x;
    return apply(q.functions[direction][function], x);
  }
  __device__ float before(const float* state_before) const {
    return state_before == nullptr ? 0.0F : state_before[state()];
  }
  /// After the step; an entry whose sequence has ended or not begun keeps its state.
  __device__ void store(bool active, float h, float c) const {
    const std::int64_t at = state();
    call.y[q.y_row(time(), direction, b) * q.hidden + j] = active ? h : 0.0F;
    step.next_h[at] = active ? h : before(step.h);
    if (q.cell == Cell::lstm) step.next_c[at] = active ? c : before(step.c);
  }
};

/// The cell at a place: sum(g) is gate g of the product with R.
template <typename Sum>
__device__ void finish(const Place& at, const Sum& sum) {
  const RecurrentProblem& q = at.q;
  const bool active = at.time() < at.length();
  if (q.cell == Cell::lstm) {
    float c = at.before(at.step.c);
    const float in = at.activated(0, at.of_x(0) + at.of_r(0, sum(0)) + at.peephole(0, c));
    const float forget = q.input_forget ? 1 - in : at.activated(0, at.of_x(2) + at.of_r(2, sum(2)) + at.peephole(2, c));
    c = forget * c + in * at.activated(1, at.of_x(3) + at.of_r(3, sum(3)));
    const float out = at.activated(0, at.of_x(1) + at.of_r(1, sum(1)) + at.peephole(1, c));
    at.store(active, out * apply(q.functions[at.direction][2], c), c);
  } else if (q.cell == Cell::gru) {
    const float h = at.before(at.step.h);
    float update, hidden;
    if (q.linear_before_reset) {
      update = at.activated(0, at.of_x(0) + at.of_r(0, sum(0)));
      const float reset = at.activated(0, at.of_x(1) + at.of_r(1, sum(1)));
      hidden = at.of_x(2) + reset * at.of_r(2, sum(2));
    } else {
      update = at.step.update[at.state()];
      hidden = at.of_x(2) + at.of_r(2, sum(0));
    }
    hidden = at.activated(1, hidden);
    at.store(active, (1 - update) * hidden + update * h, 0);
  } else {
    at.store(active, at.activated(0, at.of_x(0) + at.of_r(0, sum(0))), 0);
  }
}

/// One step: the products with R of `gates` gates from `first_gate` on, then the cell; with `resets` instead of the
/// cell the update gate, and the state times the reset gate. A warp has one hidden unit of a direction and up to
/// `entries` batch entries; its lanes split k. Grid: (parts of the batch per direction, blocks of hidden units).
template <int entries>
__global__ void __launch_bounds__(32 * warps)
    recurrent_step(const __grid_constant__ RecurrentProblem q, const __grid_constant__ RecurrentCall call,
                   const __grid_constant__ Step step, int first_gate, int gates, bool resets) {
  wait_for_previous();
  let_next_start();  // steps are short
  const int lane = static_cast<int>(threadIdx.x) % 32, hidden = static_cast<int>(q.hidden);
  const int j = static_cast<int>(blockIdx.y) * warps + static_cast<int>(threadIdx.x) / 32;
  const int direction = static_cast<int>(blockIdx.x) % q.directions;
  const std::int64_t first = std::int64_t{blockIdx.x} / q.directions * entries;
  if (j >= hidden) return;  // whole warps
  const float* const from = step.scaled != nullptr && !resets ? step.scaled : step.h;
  const float* const r = call.r + (direction * q.columns() + first_gate * q.hidden + j) * q.hidden;
  float sums[4][entries] = {};
#pragma unroll 4
  for (int k = lane; k < hidden; k += 32) {
    float h[entries];
#pragma unroll
    for (int e = 0; e < entries; ++e)
      h[e] = from == nullptr || first + e >= q.batch ? 0.0F : from[q.state_row(direction, first + e) * q.hidden + k];
#pragma unroll
    for (int g = 0; g < 4; ++g) {
      if (g >= gates) break;
      const float weight = r[g * q.hidden * q.hidden + k];
#pragma unroll
      for (int e = 0; e < entries; ++e) sums[g][e] = fmaf(weight, h[e], sums[g][e]);
    }
  }
  // Lane e computes the cell of entry e.
  float own[4] = {};
#pragma unroll
  for (int g = 0; g < 4; ++g)
#pragma unroll
    for (int e = 0; e < entries; ++e) {
      float sum = sums[g][e];
#pragma unroll
      for (int apart = 16; apart > 0; apart /= 2) sum += __shfl_xor_sync(all_lanes, sum, apart);
      if (lane == e) own[g] = sum;
    }
  if (lane >= entries || first + lane >= q.batch) return;
  const Place at{q, call, step, direction, j, first + lane};
  if (!resets) return finish(at, [&](int g) { return own[g]; });
  const float reset = at.activated(0, at.of_x(1) + at.of_r(1, own[1]));
  step.update[at.state()] = at.activated(0, at.of_x(0) + at.of_r(0, own[0]));
  step.scaled[at.state()] = reset * at.before(step.h);
}

/// Writes Y_h and Y_c; 0 for an empty sequence.
__global__ void __launch_bounds__(256)
    last_states(const __grid_constant__ RecurrentProblem q, const __grid_constant__ RecurrentCall call,
                const __grid_constant__ Step last) {
  wait_for_previous();
  const std::int64_t i = std::int64_t{blockIdx.x} * 256 + threadIdx.x;
  if (i >= q.directions * q.batch * q.hidden) return;
  const std::int64_t row = i / q.hidden, b = q.batch_first ? row / q.directions : row % q.batch;
  const Place at{q, call, last, 0, 0, b};
  const bool empty = at.length() == 0;
  if (call.y_h != nullptr) call.y_h[i] = empty ? 0.0F : last.h[i];
  if (call.y_c != nullptr) call.y_c[i] = empty ? 0.0F : last.c[i];
}

template <int entries>
void queue_step(const Context& context, const RecurrentProblem& q, const RecurrentCall& call, const Step& step) {
  const dim3 grid(blocks_for(q.batch, entries) * static_cast<unsigned>(q.directions), blocks_for(q.hidden, warps));
  const auto queue = [&](int first_gate, int gates, bool resets) {
    launch(context, recurrent_step<entries>, grid, dim3(32 * warps), 0, q, call, step, first_gate, gates, resets);
  };
  if (step.scaled == nullptr) return queue(0, q.gates(), false);
  queue(0, 2, true);
  queue(2, 1, false);
}

}  // namespace

void recurrent_steps(const Context& context, const RecurrentProblem& q, const RecurrentCall& call) {
  const std::int64_t states = q.directions * q.batch * q.hidden;
  if (states == 0) return;
  // Double-buffered h, which a step reads while writing; then c, or GRU's values between its two kernels.
  float *const h[] = {call.states, call.states + states}, *const more = call.states + 2 * states;
  Step step{.h = call.initial_h, .c = call.initial_c, .fault = context.fault};
  if (q.cell == Cell::gru && !q.linear_before_reset) {
    step.scaled = more;
    step.update = more + states;
  }
  for (; step.t < q.seq; ++step.t) {
    step.next_h = h[step.t % 2];
    step.next_c = more;
    if (q.batch == 1)
      queue_step<1>(context, q, call, step);
    else
      queue_step<most_entries>(context, q, call, step);
    step.h = step.next_h;
    step.c = step.next_c;
  }
  if (call.y_h != nullptr || call.y_c != nullptr)
    launch(context, last_states, blocks_for(states, 256), 256, 0, q, call, step);
}

}  // namespace lenslet::cuda
