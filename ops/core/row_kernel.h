#pragma once
// Kernels that can compute single rows of an image. Steps of such kernels run in bands of rows, which keep the values
// between them in the cache (runtime/passes/choose_bands.cpp).

#include <cstddef>
#include <cstdint>

#include "ops/core/kernel.h"

namespace lenslet {

/// Rows [begin, end) of an image.
struct Rows {
  std::int64_t begin = 0, end = 0;
  std::int64_t count() const { return end - begin; }
  friend bool operator==(const Rows&, const Rows&) = default;
};

/// Consecutive rows of one nhwc image in memory, from row `first` on.
template <typename T>
struct RowMemory {
  T* data = nullptr;
  std::int64_t first = 0;
  std::int64_t row_floats = 0;
  T* at(std::int64_t row) const { return data + (row - first) * row_floats; }
};

/// The images of one step's value, with its halo where the kernel wants one.
struct RowShape {
  std::int64_t images = 0, rows = 0, row_floats = 0;
  std::int64_t floats() const { return images * rows * row_floats; }
  friend bool operator==(const RowShape&, const RowShape&) = default;
};

/// One image of a tensor with this shape.
template <typename T>
RowMemory<T> image_of(T* data, const RowShape& shape, std::int64_t image) {
  return {data + image * shape.rows * shape.row_floats, 0, shape.row_floats};
}

/// Rows of one image: the output rows to compute, and at least the input rows that they read.
struct ImageRows {
  std::int64_t image = 0;
  Rows rows;
  RowMemory<const float> x;
  RowMemory<float> y;
};

/// A BoundKernel's interface beside run() (BoundKernel::row_kernel()), with bit-identical results.
class RowKernel {
 public:
  virtual ~RowKernel() = default;
  virtual RowShape x_shape() const = 0;
  virtual RowShape y_shape() const = 0;
  /// The input that is read by rows; all others are complete.
  virtual std::size_t row_input() const { return 0; }
  /// The rows of that input that output `rows` read, within the image. Any empty range if `rows` is empty or reads only
  /// padding. Both ends are monotonic in those of `rows`.
  virtual Rows reads(Rows rows) const = 0;
  /// Runs in the calling thread; threads may compute disjoint rows at once. `run` is as for run(), without pool and
  /// workspace; row_input() and output 0 are in `rows`.
  virtual void run_rows(const KernelRun& run, const ImageRows& rows) const = 0;
};

/// The row kernel for a [N,C,H,W] output in `format` (nhwc); null also where it cannot write the pixel pitch of the
/// format.
const RowKernel* row_kernel_of(const BoundKernel& bound, const Shape& y, const Format& format);

}  // namespace lenslet
