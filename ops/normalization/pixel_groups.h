#pragma once
// Groups of adjacent channels of images with channels last, each brought to mean 0 and variance 1, then to the scale
// and bias of its channel or group, then through an activation: GroupNormalization and InstanceNormalization in nhwc.

#include <cstddef>
#include <cstdint>

#include "base/thread_pool.h"
#include "lenslet/tensor.h"
#include "ops/core/activation.h"

namespace lenslet {

/// x and y [images, pixels, groups * parts]; both may have a pitch of pixels. y may be x if it has x's pitch.
struct PixelGroups {
  float epsilon = 0;
  std::int64_t images = 0, pixels = 0, groups = 1;
  std::int64_t parts = 0;                 ///< channels of a group
  std::int64_t x_pixel = 0, y_pixel = 0;  ///< elements from one pixel to the next
  bool affine_of_group = false;           ///< scale and bias [groups], else [channels]
  Activation activation;

  bool empty() const { return images * pixels * groups * parts == 0; }
};

/// Statistics are computed in double.
void normalize_pixels(const PixelGroups& of, const float* scale, const float* bias, const float* x, float* y,
                      ThreadPool& pool);

namespace cuda {

struct Context;

/// How blocks cut images: each has some adjacent groups, a slab, of some pixels, a chunk, and its threads have a pack
/// of channels of every `rows`-th pixel each.
struct PixelBlocks {
  static constexpr int threads = 256;
  static constexpr int most_chunks = 32;  ///< of an image: a warp's lanes merge their moments

  int pack = 1;              ///< elements of an access
  int slab = 1;              ///< groups; divides those of an image
  std::int64_t columns = 1;  ///< packs of a slab; more than the threads have only slabs of one group
  int rows = 1;              ///< pixels that the threads have at once
  std::int64_t chunk = 1;    ///< pixels
  int chunks = 1;

  PixelBlocks(const PixelGroups& of, DType dtype);
};

/// Bytes of device memory that normalize_pixels needs.
std::size_t normalize_pixels_workspace_bytes(const PixelGroups& of, DType dtype);

/// The same on device addresses; x and y are 16-byte aligned, of float32 or of a 16-bit type, which is rounded once.
void normalize_pixels(const Context& context, const PixelGroups& of, const float* scale, const float* bias, DType dtype,
                      const void* x, void* y, std::byte* workspace);

}  // namespace cuda
}  // namespace lenslet
