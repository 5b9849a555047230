#include "base/cuda/nvjpeg_library.h"

#include <string_view>

#include "base/cuda/run_time_library.h"

namespace lenslet::cuda {
namespace {

constexpr std::string_view sonames[] = {"libnvjpeg.so.13", "libnvjpeg.so.12"};
constexpr RunTimeLibrary nvjpeg{"nvJPEG", "12 or 13", "LENSLET_NVJPEG", sonames};

void find(NvjpegLibrary& library, LibraryEntries& entries) {
  entries.find("nvjpegGetProperty", library.get_property);
  entries.find("nvjpegCreateEx", library.create);
  entries.find("nvjpegDestroy", library.destroy);
  entries.find("nvjpegGetHardwareDecoderInfo", library.hardware_info);
  entries.find("nvjpegJpegStateCreate", library.create_state);
  entries.find("nvjpegJpegStateDestroy", library.destroy_state);
  entries.find("nvjpegJpegStreamCreate", library.create_header);
  entries.find("nvjpegJpegStreamDestroy", library.destroy_header);
  entries.find("nvjpegJpegStreamParseHeader", library.parse_header);
  entries.find("nvjpegJpegStreamGetFrameDimensions", library.frame_size);
  entries.find("nvjpegDecodeBatchedSupported", library.is_supported);
  entries.find("nvjpegDecodeBatchedInitialize", library.initialize);
  entries.find("nvjpegDecodeBatched", library.decode);
}

}  // namespace

NvjpegLibrary load_nvjpeg(const std::string& named) {
  return with_entries<NvjpegLibrary>(open_library(nvjpeg, named), find);
}

const NvjpegLibrary& nvjpeg_library() {
  static const NvjpegLibrary library = with_entries<NvjpegLibrary>(open_library(nvjpeg), find);
  return library;
}

}  // namespace lenslet::cuda
