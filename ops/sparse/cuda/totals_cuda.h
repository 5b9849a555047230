#pragma once
// Exclusive prefix sums of per-block counts, which give each block its write offset. One launch.

#include <cstdint>

namespace lenslet::cuda {

struct Context;

/// Rows of counts; each row is replaced by its exclusive prefix sums. One row may have another length. Device
/// addresses.
struct Totals {
  std::uint32_t* counts = nullptr;  ///< [rows, length]
  std::int64_t length = 0;
  int rows = 0;
  std::uint32_t* chunks = nullptr;  ///< [chunk_count]
  std::int64_t chunk_count = 0;
  const std::uint64_t* faults = nullptr;  ///< [fault_count], each no_fault or of fault_at()
  std::int64_t fault_count = 0;
  std::int64_t* totals = nullptr;  ///< [rows + 2]: of the rows, of the chunks, and the least fault's bits

  static constexpr std::int64_t extra = 2;
};

void make_totals(const Context& context, const Totals& totals);

}  // namespace lenslet::cuda
