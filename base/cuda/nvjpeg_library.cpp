#include "base/cuda/nvjpeg_library.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "base/cuda/run_time_library.h"

namespace lenslet::cuda {
namespace {

constexpr std::string_view sonames[] = {"libnvjpeg.so.13", "libnvjpeg.so.12"};
constexpr RunTimeLibrary nvjpeg{"nvJPEG", "12 or 13", "LENSLET_NVJPEG", sonames};

NvjpegLibrary with_entries(OpenedLibrary opened) {
  NvjpegLibrary library;
  library.reason = std::move(opened.reason);
  if (opened.handle == nullptr) return library;
  library.path = std::move(opened.path);
  LibraryEntries entries(opened.handle);
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
  if (entries.missing().empty()) return library;
  NvjpegLibrary absent;
  absent.reason = fmt::format("{} lacks {}", library.path, entries.missing());
  return absent;
}

}  // namespace

NvjpegLibrary load_nvjpeg(const std::string& named) { return with_entries(open_library(nvjpeg, named)); }

const NvjpegLibrary& nvjpeg_library() {
  static const NvjpegLibrary library = with_entries(open_library(nvjpeg));
  return library;
}

}  // namespace lenslet::cuda
