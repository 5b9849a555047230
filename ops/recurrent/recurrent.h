#pragma once
// LSTM, GRU and RNN in numbers: one problem for the three cells and both devices. Source: ONNX, LSTM-22, GRU-22,
// RNN-22.

#include <cstddef>
#include <cstdint>

#include "base/cuda/host_device.h"
#include "ops/core/kernel.h"
#include "ops/elementwise/unary_kinds.h"

namespace lenslet {

enum class Cell : std::uint8_t { lstm, gru, rnn };
LENSLET_HOST_DEVICE constexpr int gates_of(Cell cell) { return cell == Cell::lstm ? 4 : cell == Cell::gru ? 3 : 1; }
/// Activations per direction: f, g, h for LSTM, f, g for GRU, f for RNN.
constexpr int functions_of(Cell cell) { return cell == Cell::lstm ? 3 : cell == Cell::gru ? 2 : 1; }

/// y = after * f(before * x) + offset: covers ONNX's functions for these cells, with ScaledTanh and Affine.
struct CellFunction {
  UnaryFunction f;
  float before = 1, after = 1, offset = 0;
};

/// X [seq,batch,input], Y [seq,directions,batch,hidden], states [directions,batch,hidden]; batch_first:
/// [batch,seq,input], [batch,seq,directions,hidden], [batch,directions,hidden]. W [directions,gates*hidden,input], R
/// [directions,gates*hidden,hidden], B [directions,2*gates*hidden], P [directions,3*hidden]. Gates: i o f c of LSTM, z
/// r h of GRU.
struct RecurrentProblem {
  Cell cell = Cell::lstm;
  bool batch_first = false, linear_before_reset = false, input_forget = false;
  bool reverse = false;  ///< the one direction there is; of two, the second is
  bool clips = false;
  float clip = 0;  ///< bounds what goes into the activations of gates
  int directions = 1;
  std::int64_t seq = 0, batch = 0, input = 0, hidden = 0;
  CellFunction functions[2][3];

  LENSLET_HOST_DEVICE std::int64_t columns() const { return gates() * hidden; }
  LENSLET_HOST_DEVICE std::int64_t all_columns() const { return directions * columns(); }
  LENSLET_HOST_DEVICE int gates() const { return gates_of(cell); }
  LENSLET_HOST_DEVICE bool backwards(int direction) const { return reverse || direction == 1; }
  /// Row indices, in vectors of `input`, `all_columns()` or `hidden` elements.
  LENSLET_HOST_DEVICE std::int64_t x_row(std::int64_t t, std::int64_t b) const {
    return batch_first ? b * seq + t : t * batch + b;
  }
  LENSLET_HOST_DEVICE std::int64_t y_row(std::int64_t t, int direction, std::int64_t b) const {
    return batch_first ? (b * seq + t) * directions + direction : (t * directions + direction) * batch + b;
  }
  LENSLET_HOST_DEVICE std::int64_t state_row(int direction, std::int64_t b) const {
    return batch_first ? b * directions + direction : direction * batch + b;
  }
};

/// All three operators. sequence_lens is int32. Y is 0 behind a sequence's end, and all outputs of an empty one are 0.
class RecurrentOp final : public Op {
 public:
  enum Input : std::size_t { x, w, r, b, lengths, initial_h, initial_c, p };
  enum Output : std::size_t { y, y_h, y_c };

  explicit RecurrentOp(const NodeSpec& spec);
  std::string_view type() const override;
  AttributeList attributes() const override;
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override;
  double flops(std::span<const InputInfo> inputs, std::span<const TensorType> outputs) const override;
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape& output) const override;

  /// Error(invalid_model) when shapes do not match.
  RecurrentProblem problem(std::span<const InputInfo> inputs) const;

 private:
  /// An activation as in the file.
  struct Named {
    std::string name;
    double alpha = 0, beta = 0;
  };

  RecurrentProblem form_;  ///< without sizes
  std::size_t outputs_ = 1;
  std::int64_t hidden_ = 0;  ///< 0: R says it
  std::vector<Named> functions_;
};

inline RecurrentProblem recurrent_problem(const Problem& node) { return node.as<RecurrentOp>().problem(node.inputs()); }

/// A kernel's stated bound, if its products err by `excess` more than float32's; derived in recurrent_op.cpp.
double recurrent_tolerance(const RecurrentProblem& problem, double excess = 0);
/// Error(`kind`) when a length is outside [0, seq].
void check_lengths(const RecurrentProblem& problem, const Tensor& lengths, ErrorKind kind);

/// recurrent_cpu.cpp and recurrent_cuda.cpp.
Offer offer_recurrent_cpu(const Problem& node, const Target& target);
std::optional<BlobSpec> recurrent_cpu_blob(const Problem& node, const Candidate& candidate);
void prepare_recurrent_cpu(const Problem& node, const Candidate& candidate, std::span<std::byte> blob);
std::unique_ptr<const BoundKernel> bind_recurrent_cpu(const Binding& binding);
Offer offer_recurrent_cuda(const Problem& node, const Target& target);
std::optional<BlobSpec> recurrent_cuda_blob(const Problem& node, const Candidate& candidate);
void prepare_recurrent_cuda(const Problem& node, const Candidate& candidate, std::span<std::byte> blob);
std::unique_ptr<const BoundKernel> bind_recurrent_cuda(const Binding& binding);

}  // namespace lenslet
