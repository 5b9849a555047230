#pragma once
// Kernels that can compute a few rows of an image by themselves. Steps made of such kernels may be run in bands
// (runtime/passes/choose_bands.cpp): so many rows of the last one at a time, what lies between staying in the cache.

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

/// Where rows of one nhwc image lie, one behind the other: those from `first` on.
template <typename T>
struct RowMemory {
  T* data = nullptr;
  std::int64_t first = 0;
  std::int64_t row_floats = 0;
  T* at(std::int64_t row) const { return data + (row - first) * row_floats; }
};

/// Images of one step's value, as the kernel sees them (with the zeros around them where it wants those).
struct RowShape {
  std::int64_t images = 0, rows = 0, row_floats = 0;
  std::int64_t floats() const { return images * rows * row_floats; }
  friend bool operator==(const RowShape&, const RowShape&) = default;
};

/// One image of a tensor that lies as `shape` says.
template <typename T>
RowMemory<T> image_of(T* data, const RowShape& shape, std::int64_t image) {
  return {data + image * shape.rows * shape.row_floats, 0, shape.row_floats};
}

/// Rows of one image: of the output those to compute, of the input at least those that they read.
struct ImageRows {
  std::int64_t image = 0;
  Rows rows;
  RowMemory<const float> x;
  RowMemory<float> y;
};

/// What a BoundKernel offers besides run() (BoundKernel::row_kernel()). Results have the bits that run() gives.
class RowKernel {
 public:
  virtual ~RowKernel() = default;
  virtual RowShape x_shape() const = 0;
  virtual RowShape y_shape() const = 0;
  /// The input of which rows are read; all others are there as a whole.
  virtual std::size_t row_input() const { return 0; }
  /// The rows of that input that `rows` of the output read, within the image; of no rows, or of rows that meet padding
  /// only: any empty range. Neither end falls where those of `rows` rise.
  virtual Rows reads(Rows rows) const = 0;
  /// In the calling thread; any number of threads at once, on rows apart. `run` is as for run(), without pool and
  /// workspace, and its row_input() and output 0 stand in `rows`.
  virtual void run_rows(const KernelRun& run, const ImageRows& rows) const = 0;
};

/// The row kernel of what computes a [N,C,H,W] output in `format`, which is nhwc; null also where it cannot leave the
/// room between pixels that the format asks for.
const RowKernel* row_kernel_of(const BoundKernel& bound, const Shape& y, const Format& format);

}  // namespace lenslet
