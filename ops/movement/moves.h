#pragma once
// The parts of operators that only move elements. Everything here runs on the device of its run.

#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "ops/core/kernel.h"
#include "ops/core/strided_copy.h"

namespace lenslet {

/// One loop nest of an operator's copies from inputs to outputs.
struct Move {
  StridedLoops loops;
  std::size_t input = 0, output = 0;
  std::int64_t from = 0, to = 0;  ///< where the loops begin: elements from the first stored one
};

/// Performs moves; none reads what another writes.
class BoundMoves final : public BoundKernel {
 public:
  /// `zero_first`: zeros all of output 0 that no move writes.
  BoundMoves(const Binding& binding, std::vector<Move> moves, bool zero_first = false);
  void run(const KernelRun& run) const override;

 private:
  std::size_t element_bytes_;
  std::vector<Move> moves_;
  bool zero_first_;
};

/// For SimpleKernel::bind: a function that gives a problem's moves.
template <std::vector<Move> (*moves)(const Binding&)>
std::unique_ptr<const BoundKernel> bind_moves(const Binding& binding) {
  return std::make_unique<BoundMoves>(binding, moves(binding));
}

/// The kernels of both devices when the bound kernel runs on either.
constexpr std::array<SimpleKernel, 2> on_either(SimpleKernel row) { return on_both(row, row.bind, row.bind); }

/// Copies all bytes of `from` to `to`, which is as large; does nothing if they are the same memory.
void copy_bytes(const KernelRun& run, const Tensor& from, Tensor& to);

/// Fills all of `to` with the element in the low bytes of `bits`.
void fill(const KernelRun& run, std::uint64_t bits, Tensor& to);

}  // namespace lenslet
