// LSTM, GRU and RNN on the CPU: one product with W for all steps, then per step a product of few rows with R, to which
// the cell's functions are applied in place.

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "ops/core/checks.h"
#include "ops/core/sum_tolerance.h"
#include "ops/elementwise/unary_kernels.h"
#include "ops/gemm/gemm.h"
#include "ops/recurrent/recurrent.h"

namespace lenslet {
namespace {

std::int64_t lines(std::int64_t floats) { return (floats + 15) / 16 * 16; }

/// W and R packed for gemm(): W of all directions, then per direction the part of R that multiplies the state, then
/// GRU's hidden gate, which is another product.
class PackedMatrices {
 public:
  explicit PackedMatrices(const RecurrentProblem& q)
      : q_(q),
        apart_(q.cell == Cell::gru ? q.hidden : 0),
        w_(lines(packed_b_floats(q.input, q.all_columns()))),
        state_(lines(packed_b_floats(q.hidden, state_columns()))),
        hidden_(apart_ == 0 ? 0 : lines(packed_b_floats(q.hidden, apart_))) {}

  std::int64_t state_columns() const { return q_.columns() - apart_; }
  std::int64_t floats() const { return w_ + q_.directions * (state_ + hidden_); }
  std::int64_t of_state(int direction) const { return w_ + direction * (state_ + hidden_); }
  std::int64_t of_hidden(int direction) const { return of_state(direction) + state_; }

  void pack(const float* w, const float* r, float* to) const {
    std::fill_n(to, floats(), 0.0F);  // what lies between the pieces
    pack_b(w, 1, q_.input, q_.input, q_.all_columns(), to);
    for (int d = 0; d < q_.directions; ++d, r += q_.columns() * q_.hidden) {
      pack_b(r, 1, q_.hidden, q_.hidden, state_columns(), to + of_state(d));
      if (apart_ != 0) pack_b(r + state_columns() * q_.hidden, 1, q_.hidden, q_.hidden, apart_, to + of_hidden(d));
    }
  }

 private:
  RecurrentProblem q_;
  std::int64_t apart_, w_, state_, hidden_;  ///< columns; floats
};

void apply(const CellFunction& function, float* x, std::int64_t n) {
  if (function.before != 1)
    for (std::int64_t i = 0; i < n; ++i) x[i] *= function.before;
  apply_unary(function.f, x, x, n);
  if (function.after != 1 || function.offset != 0)
    for (std::int64_t i = 0; i < n; ++i) x[i] = function.after * x[i] + function.offset;
}

bool weights_known(const Problem& node) {
  return node.inputs()[RecurrentOp::w].constant != nullptr && node.inputs()[RecurrentOp::r].constant != nullptr;
}

class BoundRecurrent final : public BoundKernel {
 public:
  BoundRecurrent(const Problem& node, int threads)
      : q_(recurrent_problem(node)), known_(weights_known(node)), matrices_(q_) {
    // Directions and batch entries are independent: a thread takes its own through all steps. If a step's product alone
    // keeps more threads busy, they share each step instead.
    entries_ = std::clamp<std::int64_t>(threads / q_.directions, 1, std::max<std::int64_t>(1, q_.batch));
    const std::int64_t in_step = gemm_pieces(q_.batch, matrices_.state_columns(), q_.hidden, threads);
    share_steps_ = std::min<std::int64_t>(in_step, threads) > std::min<std::int64_t>(threads, q_.directions * entries_);
    if (share_steps_) entries_ = 1;
    const auto piece = [&](std::int64_t floats) { return std::exchange(floats_, floats_ + lines(floats)); };
    const std::int64_t states = q_.directions * q_.batch * q_.hidden;
    gates_ = piece(q_.seq * q_.batch * q_.all_columns());
    bias_ = piece(q_.all_columns());
    hidden_bias_ = piece(q_.linear_before_reset ? q_.directions * q_.hidden : 0);
    h_ = piece(states);
    c_ = piece(q_.cell == Cell::rnn ? 0 : states);
    packed_ = piece(known_ ? 0 : matrices_.floats());
  }

  std::size_t workspace_bytes() const override { return static_cast<std::size_t>(floats_) * sizeof(float); }

  void run(const KernelRun& run) const override {
    auto* const workspace = reinterpret_cast<float*>(run.workspace.data());
    if (const Tensor* lengths = lengths_of(run)) check_lengths(q_, *lengths, ErrorKind::invalid_argument);
    const float* packed = reinterpret_cast<const float*>(run.blob);
    if (!known_) {
      matrices_.pack(run.in<float>(RecurrentOp::w), run.in<float>(RecurrentOp::r), workspace + packed_);
      packed = workspace + packed_;
    }
    add_biases(run.in<float>(RecurrentOp::b), workspace);
    gemm({.m = q_.seq * q_.batch,
          .n = q_.all_columns(),
          .k = q_.input,
          .a = {.base = run.in<float>(RecurrentOp::x), .stride = q_.input},
          .b = packed,
          .c = workspace + gates_,
          .ldc = q_.all_columns(),
          .bias = workspace + bias_,
          .activation = {}},
         *run.pool);
    const auto item = [&](std::int64_t i) {
      const std::int64_t part = i / q_.directions;
      Entries(*this, run, packed, static_cast<int>(i % q_.directions), q_.batch * part / entries_,
              q_.batch * (part + 1) / entries_)
          .run();
    };
    const std::int64_t items = q_.directions * entries_;
    if (share_steps_) {
      for (std::int64_t i = 0; i < items; ++i) item(i);
    } else {
      run.pool->parallel_for(items, 1, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t i = begin; i < end; ++i) item(i);
      });
    }
  }

 private:
  static const Tensor* lengths_of(const KernelRun& run) {
    const std::size_t i = RecurrentOp::lengths;
    return i < run.inputs.size() && !run.inputs[i].empty() ? &run.inputs[i] : nullptr;
  }

  /// The addend of the product with W: both biases, except for GRU's hidden gate only W's if the reset gate scales R's.
  void add_biases(const float* b, float* workspace) const {
    const std::int64_t columns = q_.columns(), both = q_.linear_before_reset ? 2 * q_.hidden : columns;
    for (int d = 0; d < q_.directions; ++d) {
      const float* const of_w = b == nullptr ? nullptr : b + 2 * d * columns;
      for (std::int64_t j = 0; j < columns; ++j)
        workspace[bias_ + d * columns + j] = b == nullptr ? 0.0F : j < both ? of_w[j] + of_w[columns + j] : of_w[j];
      for (std::int64_t j = both; j < columns; ++j)
        workspace[hidden_bias_ + d * q_.hidden + j - both] = b == nullptr ? 0.0F : of_w[columns + j];
    }
  }

  /// Batch entries [first, end) in one direction, through all steps.
  class Entries {
   public:
    Entries(const BoundRecurrent& bound, const KernelRun& run, const float* packed, int direction, std::int64_t first,
            std::int64_t end)
        : bound_(bound), q_(bound.q_), run_(run), packed_(packed), direction_(direction), first_(first), end_(end) {
      auto* const workspace = reinterpret_cast<float*>(run.workspace.data());
      gates_ = workspace + bound.gates_ + direction * q_.columns();
      const std::int64_t state = (direction * q_.batch + first) * q_.hidden;
      h_ = workspace + bound.h_ + state;
      c_ = workspace + bound.c_ + state;
      hidden_bias_ = workspace + bound.hidden_bias_ + direction * q_.hidden;
      lengths_ = run.in<std::int32_t>(RecurrentOp::lengths);
      const float* const p = run.in<float>(RecurrentOp::p);
      peepholes_ = p == nullptr ? nullptr : p + direction * 3 * q_.hidden;
    }

    void run() {
      if (first_ == end_) return;
      load(run_.in<float>(RecurrentOp::initial_h), h_);
      if (q_.cell == Cell::lstm) load(run_.in<float>(RecurrentOp::initial_c), c_);
      for (std::int64_t i = 0; i < q_.seq; ++i) step(q_.backwards(direction_) ? q_.seq - 1 - i : i);
      store(h_, run_.out<float>(RecurrentOp::y_h));
      if (q_.cell == Cell::lstm) store(c_, run_.out<float>(RecurrentOp::y_c));
    }

   private:
    std::size_t row_bytes() const { return static_cast<std::size_t>(q_.hidden) * sizeof(float); }
    std::int64_t length(std::int64_t b) const { return lengths_ == nullptr ? q_.seq : lengths_[b]; }

    void load(const float* initial, float* state) const {
      for (std::int64_t b = first_; b < end_; ++b, state += q_.hidden)
        if (initial == nullptr)
          std::fill_n(state, q_.hidden, 0.0F);
        else
          std::memcpy(state, initial + q_.state_row(direction_, b) * q_.hidden, row_bytes());
    }
    void store(const float* state, float* output) const {
      if (output == nullptr) return;
      for (std::int64_t b = first_; b < end_; ++b, state += q_.hidden) {
        float* const to = output + q_.state_row(direction_, b) * q_.hidden;
        if (length(b) == 0)
          std::fill_n(to, q_.hidden, 0.0F);
        else
          std::memcpy(to, state, row_bytes());
      }
    }

    /// For all entries: c += a * b, or the bias + a * b if there is one.
    void multiply(const float* a, std::int64_t matrix, std::int64_t columns, float* c, std::int64_t row,
                  const float* bias) const {
      const Gemm call{.m = end_ - first_,
                      .n = columns,
                      .k = q_.hidden,
                      .a = {.base = a, .stride = q_.hidden},
                      .b = packed_ + matrix,
                      .c = c,
                      .ldc = row,
                      .bias = bias,
                      .residual = bias == nullptr ? c : nullptr,
                      .activation = {}};
      if (bound_.share_steps_)
        gemm(call, *run_.pool);
      else
        gemm_serial(call);
    }
    template <typename F>
    void for_each_entry(const F& f) const {
      const auto part = [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t i = begin; i < end; ++i) f(i);
      };
      const std::int64_t grain = std::max<std::int64_t>(1, 4096 / q_.columns());
      if (bound_.share_steps_)
        run_.pool->parallel_for(end_ - first_, grain, part);
      else
        part(0, end_ - first_, 0);
    }

    /// The step at time t. Backwards starts at the end of the longest sequence; shorter ones wait until it reaches
    /// theirs.
    void step(std::int64_t t) const {
      const std::int64_t row = (q_.batch_first ? q_.seq : 1) * q_.all_columns();
      float* const gates = gates_ + q_.x_row(t, first_) * q_.all_columns();
      const PackedMatrices& matrices = bound_.matrices_;
      multiply(h_, matrices.of_state(direction_), matrices.state_columns(), gates, row, nullptr);
      if (q_.cell == Cell::gru) {
        if (q_.linear_before_reset) {
          multiply(h_, matrices.of_hidden(direction_), q_.hidden, c_, q_.hidden, hidden_bias_);
          for_each_entry([&](std::int64_t i) { update_and_reset(gates + i * row, c_ + i * q_.hidden, true); });
        } else {
          for_each_entry([&](std::int64_t i) {
            std::memcpy(c_ + i * q_.hidden, h_ + i * q_.hidden, row_bytes());
            update_and_reset(gates + i * row, c_ + i * q_.hidden, false);
          });
          multiply(c_, matrices.of_hidden(direction_), q_.hidden, gates + 2 * q_.hidden, row, nullptr);
        }
      }
      float* const y = run_.out<float>(RecurrentOp::y);
      for_each_entry([&](std::int64_t i) {
        float *const h = h_ + i * q_.hidden, *const to = y + q_.y_row(t, direction_, first_ + i) * q_.hidden;
        if (t >= length(first_ + i)) {
          std::fill_n(to, q_.hidden, 0.0F);
          return;
        }
        if (q_.cell == Cell::lstm) {
          lstm(gates + i * row, h, c_ + i * q_.hidden);
        } else if (q_.cell == Cell::gru) {
          gru(gates + i * row, h);
        } else {
          activate(0, gates + i * row, q_.hidden);
          std::memcpy(h, gates + i * row, row_bytes());
        }
        std::memcpy(to, h, row_bytes());
      });
    }

    void activate(int function, float* gates, std::int64_t n) const {
      if (q_.clips) apply_clip(-q_.clip, q_.clip, gates, gates, n);
      apply(q_.functions[direction_][function], gates, n);
    }
    void add_peephole(int gate, const float* c, float* to) const {
      if (peepholes_ == nullptr) return;
      const float* const p = peepholes_ + gate * q_.hidden;
      for (std::int64_t j = 0; j < q_.hidden; ++j) to[j] += p[j] * c[j];
    }

    void lstm(float* __restrict gates, float* __restrict h, float* __restrict c) const {
      const std::int64_t n = q_.hidden;
      float *const in = gates, *const out = gates + n, *const forget = gates + 2 * n, *const cell = gates + 3 * n;
      if (peepholes_ == nullptr) {
        activate(0, in, 3 * n);
      } else {
        add_peephole(0, c, in);
        add_peephole(2, c, forget);
        activate(0, in, n);
        activate(0, forget, n);
      }
      activate(1, cell, n);
      if (q_.input_forget)
        for (std::int64_t j = 0; j < n; ++j) forget[j] = 1 - in[j];
      for (std::int64_t j = 0; j < n; ++j) c[j] = forget[j] * c[j] + in[j] * cell[j];
      if (peepholes_ != nullptr) {
        add_peephole(1, c, out);
        activate(0, out, n);
      }
      std::memcpy(h, c, row_bytes());
      apply(q_.functions[direction_][2], h, n);
      for (std::int64_t j = 0; j < n; ++j) h[j] *= out[j];
    }

    /// z and r; then r scales `by_reset`, the state or its product with R, which is added to the hidden gate.
    void update_and_reset(float* __restrict gates, float* __restrict by_reset, bool add) const {
      const std::int64_t n = q_.hidden;
      activate(0, gates, 2 * n);
      const float* const reset = gates + n;
      for (std::int64_t j = 0; j < n; ++j) by_reset[j] *= reset[j];
      if (add)
        for (std::int64_t j = 0; j < n; ++j) gates[2 * n + j] += by_reset[j];
    }
    void gru(float* __restrict gates, float* __restrict h) const {
      const std::int64_t n = q_.hidden;
      const float *const update = gates, *const hidden = gates + 2 * n;
      activate(1, gates + 2 * n, n);
      for (std::int64_t j = 0; j < n; ++j) h[j] = (1 - update[j]) * hidden[j] + update[j] * h[j];
    }

    const BoundRecurrent& bound_;
    const RecurrentProblem& q_;
    const KernelRun& run_;
    const float* const packed_;
    const int direction_;
    const std::int64_t first_, end_;
    float *gates_, *h_, *c_;  ///< of the first entry; gates at time 0
    const float *hidden_bias_, *peepholes_;
    const std::int32_t* lengths_;
  };

  const RecurrentProblem q_;
  const bool known_;
  const PackedMatrices matrices_;
  std::int64_t entries_ = 1;  ///< parts of the batch
  bool share_steps_ = false;
  /// The workspace in floats, each part 64-byte aligned. c_: LSTM's cell state, or GRU's value scaled by the reset
  /// gate.
  std::int64_t floats_ = 0, gates_ = 0, bias_ = 0, hidden_bias_ = 0, h_ = 0, c_ = 0, packed_ = 0;
};

}  // namespace

Offer offer_recurrent_cpu(const Problem& node, const Target& target) {
  Candidate candidate;
  candidate.inputs.assign(node.inputs().size(), formats::nchw);
  candidate.outputs.assign(node.outputs().size(), formats::nchw);
  candidate.workspace_bytes = BoundRecurrent(node, target.device.units).workspace_bytes();
  candidate.estimated_us = target.device.launch_us + node.bytes() / target.device.bytes_per_us;
  candidate.tolerance = recurrent_tolerance(recurrent_problem(node));
  if (weights_known(node)) candidate.reads &= ~(input_bit(RecurrentOp::w) | input_bit(RecurrentOp::r));
  return candidate;
}

std::optional<BlobSpec> recurrent_cpu_blob(const Problem& node, const Candidate&) {
  if (!weights_known(node)) return std::nullopt;
  const RecurrentProblem q = recurrent_problem(node);
  const PackedMatrices matrices(q);
  return BlobSpec{.key = fmt::format("gates={} columns={}", gates_of(q.cell), gemm_tile_cols()),
                  .bytes = static_cast<std::size_t>(matrices.floats()) * sizeof(float)};
}

void prepare_recurrent_cpu(const Problem& node, const Candidate&, std::span<std::byte> blob) {
  const auto floats = [&](std::size_t i) { return node.inputs()[i].constant->values<float>().data(); };
  PackedMatrices(recurrent_problem(node))
      .pack(floats(RecurrentOp::w), floats(RecurrentOp::r), reinterpret_cast<float*>(blob.data()));
}

std::unique_ptr<const BoundKernel> bind_recurrent_cpu(const Binding& binding) {
  return std::make_unique<BoundRecurrent>(binding.problem, binding.threads());
}

}  // namespace lenslet
