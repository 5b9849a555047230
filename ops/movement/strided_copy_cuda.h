#pragma once
// Copies between device tensors with different element orders: the kernel of Concat, Split, Slice, Expand, Tile,
// Transpose and others.

#include <array>
#include <cstddef>

#include "ops/core/strided_copy.h"

namespace lenslet::cuda {

struct Context;

/// Batches independent copies into few launches: a launch takes about a microsecond, more than the copies of a small
/// network. Copies may be deferred until flush().
class CopyBatch {
 public:
  /// Elements of 1, 2, 4 or 8 bytes.
  CopyBatch(const Context& context, std::size_t element_bytes) : context_(context), element_bytes_(element_bytes) {}
  /// to[sum index*to_stride] = from[sum index*from_stride] for all indices, as lenslet::strided_copy. Device addresses
  /// of the elements at index 0; written and read memory must not overlap, here or in the rest of the batch.
  void add(const StridedLoops& loops, const void* from, void* to);
  void flush();

 private:
  struct Copy {
    StridedLoops loops;
    const void* from = nullptr;
    void* to = nullptr;
  };
  static constexpr std::size_t capacity = 8;

  void add_part(const StridedLoops& loops, const void* from, void* to);

  const Context& context_;
  std::size_t element_bytes_;
  std::array<Copy, capacity> copies_;
  std::size_t count_ = 0;
};

/// A batch of one.
void strided_copy(const Context& context, std::size_t element_bytes, const StridedLoops& loops, const void* from,
                  void* to);

}  // namespace lenslet::cuda
