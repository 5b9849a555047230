#pragma once
// Inputs and outputs of a CPU plan that may lie in the app's memory instead of the arena.

#include <cstddef>
#include <utility>
#include <vector>

#include "lenslet/tensor.h"
#include "runtime/exec/plan.h"

namespace lenslet {

/// Of the app's memory, to be read and written where it lies: what malloc() and NumPy give. Kernels load and store
/// values unaligned; that vectors may cross lines of the cache takes less than a copy does.
inline constexpr std::size_t app_alignment = 16;

/// One input or output, and every tensor of the steps that lies in its memory: they move together.
class MovablePort {
 public:
  /// `home` lies in the arena. What may not move has no tensors.
  MovablePort(Tensor home, std::vector<Tensor*> tensors)
      : home_(std::move(home)), at_(home_.data()), tensors_(std::move(tensors)) {}

  /// To `data`, which holds as many bytes; null: home. False when it stays where it is: at home, if it may not move, or
  /// where it was, if `data` is not aligned to app_alignment.
  bool move(void* data);

 private:
  Tensor home_;
  void* at_;
  std::vector<Tensor*> tensors_;
};

/// No step writes into the input's memory, and no output is it.
bool input_may_move(const Plan& plan, std::size_t input);
/// No other port is it, no constant, and nothing larger lies where it does.
bool output_may_move(const Plan& plan, std::size_t output);

}  // namespace lenslet
