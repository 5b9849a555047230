#include "ops/movement/diagonals_cuda.h"

#include "base/cuda/launch.h"
#include "base/dtypes.h"
#include "ops/core/radix.cuh"

namespace lenslet::cuda {
namespace {

constexpr int threads = 256;

struct Diagonals {
  Radix rows, cols;
  std::int64_t elems, least, most;
};

template <typename T>
__global__ void __launch_bounds__(threads)
    keep_diagonals(const T* from, T value, T* y, const __grid_constant__ Diagonals diagonals) {
  wait_for_previous();
  const std::int64_t at = std::int64_t{blockIdx.x} * threads + threadIdx.x;
  if (at >= diagonals.elems) return;
  const bool narrow = diagonals.elems < Radix::narrow_end;
  std::int64_t rest = at;
  const std::int64_t col = take_digit(rest, diagonals.cols, narrow), row = take_digit(rest, diagonals.rows, narrow);
  const bool inside = col - row >= diagonals.least && col - row <= diagonals.most;
  y[at] = !inside ? T{0} : from != nullptr ? from[at] : value;
}

}  // namespace

void diagonals(const Context& context, std::size_t element_bytes, std::int64_t count, std::int64_t rows,
               std::int64_t cols, std::int64_t least, std::int64_t most, const void* from, std::uint64_t value,
               void* y) {
  const std::int64_t elems = count * rows * cols;
  if (elems == 0) return;
  const Diagonals kept{Radix(rows), Radix(cols), elems, least, most};
  dispatch_bytes(element_bytes, [&]<typename T>(std::type_identity<T>) {
    launch(context, keep_diagonals<T>, blocks_for(elems, threads), threads, 0, static_cast<const T*>(from),
           static_cast<T>(value), static_cast<T*>(y), kept);
  });
}

}  // namespace lenslet::cuda
