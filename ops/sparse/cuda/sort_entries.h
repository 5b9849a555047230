#pragma once
// Sorting by key on a device (sort_entries.cuh), its workspace, and counting distinct keys.

#include <cstdint>

#include "ops/sparse/cuda/workspace.h"

namespace lenslet::cuda {

struct Context;

/// A row or pair with the number of its cell; no_key if it has none.
struct alignas(16) Entry {
  std::int64_t key, row;
};

inline constexpr int sort_tile = 1024, faults_of_tile = sort_tile / 2 / 32;

/// Device addresses.
struct SortMemory {
  Entry *entries, *other;

  SortMemory(std::int64_t count, Parts& parts) : entries(parts.take<Entry>(count)), other(parts.take<Entry>(count)) {}
};

constexpr std::int64_t tiles_of(std::int64_t count) { return (count + sort_tile - 1) / sort_tile; }
constexpr std::int64_t warps_of(std::int64_t count) { return (count + 31) / 32; }

/// Merges the sorted tiles of memory.entries; returns memory.entries or memory.other.
const Entry* merge_tiles(const Context& context, std::int64_t count, const SortMemory& memory);

/// Counts over sorted entries, per warp of 32: `heads` whose key differs from the previous one; `live` entries with a
/// key; `repeated`, of_sorted | fault_at() of the first that is no head. Each may be null.
void count_heads(const Context& context, const Entry* sorted, std::int64_t count, std::uint32_t* heads,
                 std::uint32_t* live, std::uint64_t* repeated);

}  // namespace lenslet::cuda
