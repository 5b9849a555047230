#pragma once
// The kernels of all reductions: any kept and reduced axes, any fold, always in the same order. reduce_dense.cuh has
// faster ones for the usual axes.
//
// A block of 256 threads computes `lanes` outputs with `depth` threads each. If adjacent elements belong to different
// outputs (`across`: columns, channels of nhwc), adjacent threads have different outputs; otherwise they share one.
// Either way a warp's reads are contiguous. The threads of an output merge by shuffles, then warps through shared
// memory. If outputs are too few to fill the device, `splits` blocks share each, and a second kernel merges their
// partial folds in the workspace.

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/convert.h"
#include "base/cuda/launch.h"
#include "base/cuda/warp.cuh"
#include "ops/core/radix.cuh"
#include "ops/reduce/reduce_dense.cuh"
#include "ops/reduce/reduce_kernels.h"

namespace lenslet::cuda {

/// Largest size of a Fold (fold.h).
inline constexpr int fold_bytes = 16;

struct ReduceGeometry {
  struct Loop {
    Radix dim;
    std::int64_t from = 0, to = 0;  ///< strides in elements
  };
  struct Loops {
    Loop loop[Shape::max_rank];  ///< outermost first
    int rank = 1;
    bool narrow = true;  ///< count < 2^31
    std::int64_t count = 1;
  };
  Loops kept, reduced;
  bool across = false;
  int lane_bits = 0, depth_bits = 0;  ///< log2 of lanes and depth; they add up to 8
  int splits = 1;
  std::int64_t chunk = 0;  ///< reduced elements a split takes
};

/// How `loops` are distributed: depends on the shape only, so that all devices give the same bits.
ReduceGeometry reduce_geometry(const reduce::Loops& loops);

template <std::int64_t ReduceGeometry::Loop::*stride>
__device__ std::int64_t offset_at(const ReduceGeometry::Loops& loops, std::int64_t index) {
  std::int64_t offset = 0;
  for (int i = loops.rank - 1; i > 0; --i)
    offset += take_digit(index, loops.loop[i].dim, loops.narrow) * (loops.loop[i].*stride);
  return offset + index * (loops.loop[0].*stride);
}

/// The offset of an output.
struct InLoops {
  ReduceGeometry::Loops kept;
  __device__ std::int64_t operator()(std::int64_t output) const {
    return offset_at<&ReduceGeometry::Loop::to>(kept, output);
  }
};

/// Grid: (outputs / lanes, splits). Five blocks per multiprocessor, 48 registers: the most without spills in float.
template <typename Fold>
__global__ void __launch_bounds__(reduce_threads, 5)
    reduce_blocks(const typename Fold::In* x, typename Fold::Out* y, Fold* partials,
                  const __grid_constant__ ReduceGeometry g, typename Fold::Rule rule) {
  using In = typename Fold::In;
  using Loop = ReduceGeometry::Loop;
  wait_for_previous();
  let_next_start();
  alignas(16) __shared__ unsigned char shared_bytes[reduce_threads * sizeof(Fold)];
  auto* shared = reinterpret_cast<Fold*>(shared_bytes);
  const int thread = static_cast<int>(threadIdx.x);
  const int lanes = 1 << g.lane_bits, depth = 1 << g.depth_bits;
  const int lane = g.across ? thread & (lanes - 1) : thread >> g.depth_bits;
  const int member = g.across ? thread >> g.lane_bits : thread & (depth - 1);
  const std::int64_t output = static_cast<std::int64_t>(blockIdx.x) * lanes + lane;
  const bool inside = output < g.kept.count;
  Fold fold(rule);
  if (inside) {
    const In* from = x + offset_at<&Loop::from>(g.kept, output);
    const std::int64_t first = static_cast<std::int64_t>(blockIdx.y) * g.chunk;
    const std::int64_t end = first + g.chunk < g.reduced.count ? first + g.chunk : g.reduced.count;
    take_turns<4>(
        first + member, end, depth, In{}, [&](std::int64_t i) { return from[offset_at<&Loop::from>(g.reduced, i)]; },
        [&](In value, std::int64_t i) {
          if (i < end) fold.add(value, i, rule);
        });
  }
  const int mask_end = !g.across && depth < warp_threads ? depth : warp_threads;
  merge_lanes(fold, g.across ? lanes : 1, mask_end, rule);
  // What remains is one value per warp and output; with more lanes than a warp, one per thread.
  const int merged = g.across ? (lanes < warp_threads ? warp_threads / lanes : 1) : mask_end;
  const int rows = depth / merged;
  if (rows > 1) {
    if (member % merged == 0) shared[member / merged * lanes + lane] = fold;
    __syncthreads();
    if (member == 0)
      for (int row = 1; row < rows; ++row) fold.merge(shared[row * lanes + lane], rule);
  }
  if (member != 0 || !inside) return;
  if (g.splits > 1)
    partials[output * g.splits + blockIdx.y] = fold;
  else
    y[offset_at<&Loop::to>(g.kept, output)] = fold.result(g.reduced.count, rule);
}

/// Queues the kernels; `workspace` has reduce_workspace_bytes(loops).
template <typename Fold>
void reduce_by(const Context& context, const reduce::Loops& loops, typename Fold::Rule rule, const void* x, void* y,
               void* workspace) {
  static_assert(sizeof(Fold) <= fold_bytes);
  using In = typename Fold::In;
  if constexpr (std::is_same_v<In, float> || is_half<In>)
    if (reduce_dense<Fold>(context, dense_reduction(loops), rule, static_cast<const In*>(x),
                           static_cast<typename Fold::Out*>(y), workspace))
      return;
  const ReduceGeometry g = reduce_geometry(loops);
  if (g.kept.count == 0) return;
  auto* partials = static_cast<Fold*>(workspace);
  const dim3 grid(blocks_for(g.kept.count, 1 << g.lane_bits), static_cast<unsigned>(g.splits));
  launch(context, reduce_blocks<Fold>, grid, dim3(reduce_threads), 0, static_cast<const In*>(x),
         static_cast<typename Fold::Out*>(y), partials, g, rule);
  if (g.splits > 1)
    launch(context, merge_partials<Fold, InLoops>, dim3(blocks_for(g.kept.count, reduce_warps)), dim3(reduce_threads),
           0, partials, static_cast<typename Fold::Out*>(y), g.kept.count, g.splits, g.reduced.count, rule,
           InLoops{g.kept});
}

}  // namespace lenslet::cuda
