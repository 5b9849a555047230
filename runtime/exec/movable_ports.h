#pragma once
// Inputs and outputs of a CPU plan that may use the application's memory instead of the arena.

#include <cstddef>
#include <utility>
#include <vector>

#include "lenslet/tensor.h"
#include "runtime/exec/plan.h"

namespace lenslet {

/// Alignment for in-place use of the application's memory, as malloc() and NumPy provide. Kernels use unaligned loads
/// and stores; crossing cache lines costs less than a copy.
inline constexpr std::size_t app_alignment = 16;

/// One input or output with all step tensors in its memory, which move together.
class MovablePort {
 public:
  /// `home` is in the arena. A port that may not move has no tensors.
  MovablePort(Tensor home, std::vector<Tensor*> tensors)
      : home_(std::move(home)), at_(home_.data()), tensors_(std::move(tensors)) {}

  /// Moves to `data`, which holds as many bytes; null: back home. False if it may not move, or if `data` is not aligned
  /// to app_alignment; it then stays where it was.
  bool move(void* data);

 private:
  Tensor home_;
  void* at_;
  std::vector<Tensor*> tensors_;
};

/// Whether no step writes to the input's memory and no output shares it.
bool input_may_move(const Plan& plan, std::size_t input);
/// Whether it shares memory with no other port or constant and is not part of a larger value.
bool output_may_move(const Plan& plan, std::size_t output);

}  // namespace lenslet
