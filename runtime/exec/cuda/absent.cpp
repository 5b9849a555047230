// Replaces gpu_jpeg.cpp in builds without CUDA.

#include "lenslet/device.h"
#include "lenslet/error.h"
#include "lenslet/gpu_jpeg.h"

namespace lenslet {

class GpuJpegDecoder::Work {};

GpuJpegDecoder::GpuJpegDecoder(const std::string& device) {
  choose_device(device);  // says that this build has no CUDA half
  throw Error(ErrorKind::invalid_argument, "JPEGs are decoded on CUDA devices, not on " + device);
}
GpuJpegDecoder::~GpuJpegDecoder() = default;
std::vector<ImageView> GpuJpegDecoder::decode(std::span<const GpuJpeg>) { return {}; }
const std::string& GpuJpegDecoder::description() const {
  static const std::string none;
  return none;
}

}  // namespace lenslet
