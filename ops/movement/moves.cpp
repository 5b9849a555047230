#include "ops/movement/moves.h"

#include <cassert>
#include <cstring>

#include "base/cuda_built.h"
#include "ops/core/grain.h"
#include "ops/movement/fill_cuda.h"
#include "ops/movement/strided_copy_cuda.h"

namespace lenslet {

namespace {

/// A contiguous copy.
StridedLoops along(std::size_t count, std::int64_t from_stride) {
  StridedLoops loops;
  loops.add(static_cast<std::int64_t>(count), from_stride, 1);
  return loops;
}

}  // namespace

BoundMoves::BoundMoves(const Binding& binding, std::vector<Move> moves, bool zero_first)
    : element_bytes_(dtype_bytes(binding.problem.outputs()[0].dtype)),
      moves_(std::move(moves)),
      zero_first_(zero_first) {}

void BoundMoves::run(const KernelRun& run) const {
  if (zero_first_) fill(run, 0, run.outputs[0]);
  const auto for_each_move = [&](const auto& copy) {
    for (const Move& move : moves_)
      if (Tensor& to = run.outputs[move.output]; !to.empty())
        copy(move.loops, element_at(run.inputs[move.input], move.from), element_at(to, move.to));
  };
  if constexpr (cuda_built)
    if (run.cuda != nullptr) {
      cuda::CopyBatch batch(*run.cuda, element_bytes_);
      for_each_move([&](const StridedLoops& loops, const void* from, void* to) { batch.add(loops, from, to); });
      return batch.flush();
    }
  for_each_move([&](const StridedLoops& loops, const void* from, void* to) {
    strided_copy(element_bytes_, loops, from, to, *run.pool);
  });
}

void copy_bytes(const KernelRun& run, const Tensor& from, Tensor& to) {
  assert(from.bytes() == to.bytes());
  if (from.data() == to.data()) return;
  if constexpr (cuda_built)
    if (run.cuda != nullptr) return cuda::strided_copy(*run.cuda, 1, along(from.bytes(), 1), from.data(), to.data());
  const auto* source = static_cast<const std::byte*>(from.data());
  auto* target = static_cast<std::byte*>(to.data());
  run.pool->parallel_for(static_cast<std::int64_t>(from.bytes()), copy_grain_bytes,
                         [&](std::int64_t begin, std::int64_t end, int) {
                           std::memcpy(target + begin, source + begin, static_cast<std::size_t>(end - begin));
                         });
}

void fill(const KernelRun& run, std::uint64_t bits, Tensor& to) {
  const std::size_t element_bytes = dtype_bytes(to.dtype());
  const std::size_t stored = to.bytes() / element_bytes;
  if constexpr (cuda_built)
    if (run.cuda != nullptr)
      return cuda::fill(*run.cuda, element_bytes, static_cast<std::int64_t>(stored), bits, to.data());
  strided_copy(element_bytes, along(stored, 0), &bits, to.data(), *run.pool);
}

}  // namespace lenslet
