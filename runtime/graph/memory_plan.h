#pragma once
// Assigns offsets in one arena from lifetimes; a pure function.

#include <cstddef>
#include <span>
#include <vector>

namespace lenslet {

inline constexpr std::size_t arena_alignment = 64;

/// One block of memory, needed from step `first` to step `last`, both included.
struct MemoryRequest {
  std::size_t bytes = 0;
  int first = 0, last = 0;
};

struct MemoryPlan {
  std::vector<std::size_t> offsets;  ///< one a request, aligned
  std::size_t arena_bytes = 0;
  std::size_t lower_bound_bytes = 0;  ///< most bytes alive at one step
  std::size_t sum_bytes = 0;          ///< without reuse
};

/// Largest first, each at the lowest offset free over its lifetime. Zero-byte requests get offset 0.
MemoryPlan plan_memory(std::span<const MemoryRequest> requests, std::size_t alignment = arena_alignment);

}  // namespace lenslet
