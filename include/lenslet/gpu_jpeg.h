#pragma once
// JPEG files decoded on a CUDA device, for Runner::load_image() there.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lenslet/export.h"
#include "lenslet/image.h"

namespace lenslet {

struct GpuJpeg {
  std::span<const std::byte> file;
  std::int64_t height = 0, width = 0;  ///< as read from its header; nvJPEG has to agree
};

/// Decodes batches with NVIDIA's nvJPEG, on the device's JPEG engines where it has some. nvJPEG is opened at run time:
/// LENSLET_NVJPEG in the environment names its file or folder. Pixels differ from libjpeg-turbo's (docs/photos.md says
/// by how much). A damaged file may give wrong pixels instead of an error. One thread at a time.
class LENSLET_API GpuJpegDecoder {
 public:
  /// On "cuda:0" or the like. Error(unsupported) without nvJPEG, Error(device).
  explicit GpuJpegDecoder(const std::string& device);
  ~GpuJpegDecoder();
  GpuJpegDecoder(const GpuJpegDecoder&) = delete;
  GpuJpegDecoder& operator=(const GpuJpegDecoder&) = delete;

  /// One image for each file: RGB, also of gray files, as stored, whatever EXIF says, in memory of the device that is
  /// valid until the next call or the decoder's end. `pixels` is null for files that nvJPEG refuses; one that it finds
  /// damaged while it decodes makes it refuse all. Returns when the pixels are there. Error(device).
  std::vector<ImageView> decode(std::span<const GpuJpeg> files);

  /// "nvJPEG 13.0.4 on 7 JPEG engines of cuda:0"
  const std::string& description() const;

 private:
  class Work;
  std::unique_ptr<Work> work_;
};

}  // namespace lenslet
