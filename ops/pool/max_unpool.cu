#include "base/cuda/launch.h"
#include "ops/core/radix.cuh"
#include "ops/movement/fill_cuda.h"
#include "ops/pool/max_unpool_cuda.h"

namespace lenslet::cuda {
namespace {

constexpr int threads = 256;

struct Places {
  struct Loop {
    Radix dim;
    std::int64_t to = 0;
  };
  Loop loop[Shape::max_rank];  ///< outermost first
  int rank = 0;
  std::int64_t count = 0;
  bool narrow = true;

  __device__ std::int64_t at(std::int64_t index) const {
    std::int64_t place = 0;
    for (int i = rank - 1; i >= 0; --i) place += take_digit(index, loop[i].dim, narrow) * loop[i].to;
    return place;
  }
};

/// y holds the number of the last element that belongs there, or a negative number.
__global__ void __launch_bounds__(threads)
    claim(const std::int64_t* indices, std::int64_t elems, int* y, const __grid_constant__ Places places) {
  wait_for_previous();
  const std::int64_t i = std::int64_t{blockIdx.x} * threads + threadIdx.x;
  if (i >= elems) return;
  const std::int64_t index = indices[i];
  if (index >= 0 && index < places.count) atomicMax(y + places.at(index), static_cast<int>(i));
}

/// Replaces numbers by elements.
__global__ void __launch_bounds__(threads) hand_out(const float* x, float* y, std::int64_t outputs) {
  wait_for_previous();
  const std::int64_t first = (std::int64_t{blockIdx.x} * threads + threadIdx.x) * 4;
  const auto element = [=](int number) { return number < 0 ? 0.0F : x[number]; };
  if (first + 4 <= outputs) {
    const int4 from = *reinterpret_cast<const int4*>(y + first);
    *reinterpret_cast<float4*>(y + first) =
        make_float4(element(from.x), element(from.y), element(from.z), element(from.w));
  } else {
    for (std::int64_t i = first; i < outputs; ++i) y[i] = element(reinterpret_cast<const int*>(y)[i]);
  }
}

}  // namespace

void max_unpool(const Context& context, const StridedLoops& loops, std::int64_t elems, const float* x,
                const std::int64_t* indices, std::int64_t outputs, float* y) {
  if (outputs == 0) return;
  Places places;
  places.rank = loops.rank();
  for (int i = 0; i < loops.rank(); ++i) places.loop[i] = {Radix(loops[i].dim), loops[i].to};
  places.count = loops.count();
  places.narrow = places.count < Radix::narrow_end;
  fill(context, sizeof(float), outputs, ~std::uint64_t{0}, y);
  if (elems > 0 && places.count > 0)
    launch(context, claim, blocks_for(elems, threads), threads, 0, indices, elems, reinterpret_cast<int*>(y), places);
  launch(context, hand_out, blocks_for(outputs, 4 * threads), threads, 0, x, y, outputs);
}

}  // namespace lenslet::cuda
