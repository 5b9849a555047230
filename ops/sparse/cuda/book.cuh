#pragma once
// Shared by the kernels that write a rulebook.

#include "ops/sparse/build_rulebook.h"
#include "ops/sparse/cuda/sites.cuh"
#include "ops/sparse/cuda/totals_cuda.h"

namespace lenslet::cuda {

/// Rows of counts of a rulebook: one per tap, then the sites.
struct Book {
  std::int32_t* rulebook = nullptr;
  int taps = 0;               ///< that are stored
  std::int64_t capacity = 0;  ///< capacity in pairs

  __device__ std::int32_t* in() const { return rulebook + 3 + taps; }
  __device__ std::int32_t* out() const { return in() + capacity; }
};

/// A neighbour table that is built along, or none.
struct NeighbourTable {
  std::int32_t* table = nullptr;  ///< [taps, rows], or null
  std::int64_t rows = 0, length = 0;

  NeighbourTable(const RulebookPlan& plan, std::int32_t* memory)
      : table(memory),
        rows(neighbour_rows(plan.max_outputs)),
        length(memory != nullptr ? plan.geometry.volume() * rows : 0) {}
  __device__ void put(int tap, std::int64_t output, std::int32_t input) const {
    if (table != nullptr) table[tap * rows + output] = input;
  }
};

inline constexpr int most_stored_taps = 125;

/// The offset of each tap's pairs, in shared memory, and the total.
struct Begins {
  std::int64_t at[most_stored_taps + 1];

  /// Called by the whole block; totals[0, taps) are the counts of pairs.
  __device__ void read(const std::int64_t* totals, int taps) {
    for (int t = static_cast<int>(threadIdx.x); t <= taps; t += static_cast<int>(blockDim.x))
      at[t] = t < taps ? totals[t] : 0;
    __syncthreads();
    if (threadIdx.x < warp_threads) {
      std::int64_t known = 0;
      for (int first = 0; first <= taps; first += warp_threads) {
        const int t = first + static_cast<int>(threadIdx.x);
        const std::int64_t own = t < taps ? at[t] : 0, so_far = sum_so_far(own);
        if (t <= taps) at[t] = known + so_far - own;
        known += __shfl_sync(whole_warp, so_far, warp_threads - 1);
      }
    }
    __syncthreads();
  }
};

/// Writes counts and offsets; zeros after a fault. By one block.
__device__ inline void write_header(const Book& book, const Begins& begins, bool wrong, std::int64_t inputs,
                                    std::int64_t outputs) {
  if (threadIdx.x == 0) {
    book.rulebook[0] = wrong ? 0 : static_cast<std::int32_t>(inputs);
    book.rulebook[1] = wrong ? 0 : static_cast<std::int32_t>(outputs);
  }
  for (int t = static_cast<int>(threadIdx.x); t <= book.taps; t += static_cast<int>(blockDim.x))
    book.rulebook[2 + t] = wrong ? 0 : static_cast<std::int32_t>(begins.at[t]);
}

/// Write offsets of a warp's pairs, for taps in order from 0; called by all lanes.
class Places {
 public:
  __device__ Places(const Begins& begins, const std::uint32_t* counts, int taps, std::int64_t warps, std::int64_t warp)
      : begins_(begins), counts_(counts), taps_(taps), warps_(warps), warp_(warp) {}
  __device__ std::int64_t operator()(int tap) {
    // Reads 32 taps at a time: one memory latency instead of 32.
    if (tap % warp_threads == 0) {
      const int own = tap + static_cast<int>(threadIdx.x) % warp_threads;
      places_ = own < taps_ ? begins_.at[own] + counts_[own * warps_ + warp_] : 0;
    }
    return __shfl_sync(whole_warp, places_, tap % warp_threads);
  }

 private:
  const Begins& begins_;
  const std::uint32_t* counts_;
  int taps_;
  std::int64_t warps_, warp_, places_ = 0;
};

/// The lane's rank among the lanes with `is`.
__device__ inline int rank_in_warp(unsigned which) { return __popc(which & ((1U << threadIdx.x % warp_threads) - 1)); }

}  // namespace lenslet::cuda
