#include "base/cuda/tensor_map.h"

#include <cudaTypedefs.h>
#include <fmt/format.h>

#include <algorithm>

#include "base/cuda/check.h"
#include "lenslet/error.h"

namespace lenslet::cuda {
namespace {

// All 16-bit types use the same type: copies and zero fill do not depend on it.
CUtensorMapDataType type_of(MapElement element) {
  switch (element) {
    case MapElement::half:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case MapElement::tf32:
      return CU_TENSOR_MAP_DATA_TYPE_TFLOAT32;
    case MapElement::f32:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  }
  throw Error(ErrorKind::internal, "a tensor map's element type");
}
constexpr std::uint32_t widest_bytes = 128;

/// The swizzle of boxes with `row_bytes`.
CUtensorMapSwizzle swizzle_of(std::uint32_t row_bytes) {
  switch (row_bytes) {
    case 128:
      return CU_TENSOR_MAP_SWIZZLE_128B;
    case 64:
      return CU_TENSOR_MAP_SWIZZLE_64B;
    case 32:
      return CU_TENSOR_MAP_SWIZZLE_32B;
    case 192:
    case 208:
      return CU_TENSOR_MAP_SWIZZLE_NONE;
    default:
      throw Error(ErrorKind::internal, fmt::format("a tensor map's box with rows of {} bytes", row_bytes));
  }
}

/// A driver entry, found at run time: programs must also run without a driver.
template <typename Entry>
Entry driver_entry(const char* name) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found{};
  CUDA_CHECK(cudaGetDriverEntryPointByVersion(name, &entry, 12000, cudaEnableDefault, &found));
  if (found != cudaDriverEntryPointSuccess || entry == nullptr)
    throw Error(ErrorKind::device, fmt::format("the driver has no {}: it is older than CUDA 12.0", name));
  return reinterpret_cast<Entry>(entry);
}

void check(CUresult status, const char* name) {
  if (status == CUDA_SUCCESS) return;
  throw Error(ErrorKind::device, fmt::format("{} failed with CUresult {}", name, static_cast<int>(status)));
}

/// Strides of axes 1 and up, in bytes.
template <std::size_t most>
std::array<cuuint64_t, most> strides_of(std::span<const std::uint64_t> sizes, std::uint64_t pitch, MapElement element) {
  std::array<cuuint64_t, most> strides{};
  strides[0] = bytes_of(element) * (pitch == 0 ? sizes[0] : pitch);
  for (std::size_t axis = 1; axis + 1 < sizes.size(); ++axis) strides[axis] = strides[axis - 1] * sizes[axis];
  return strides;
}

}  // namespace

CUtensorMap tiled_map(const void* tensor, std::span<const std::uint64_t> sizes, std::span<const std::uint32_t> box,
                      MapElement element, std::uint64_t pitch, std::span<const std::uint64_t> last_strides) {
  static const auto encode = driver_entry<PFN_cuTensorMapEncodeTiled_v12000>("cuTensorMapEncodeTiled");
  constexpr std::size_t most = 4;
  if (sizes.size() < 2 || sizes.size() > most || box.size() != sizes.size() || last_strides.size() >= sizes.size())
    throw Error(ErrorKind::internal, "a tensor map of other than two to four axes");
  std::array<cuuint64_t, most> lengths{};
  std::array<cuuint32_t, most> lines{}, ones{1, 1, 1, 1};
  for (std::size_t axis = 0; axis < sizes.size(); ++axis) {
    lengths[axis] = sizes[axis];
    lines[axis] = box[axis];
  }
  auto strides = strides_of<most>(sizes, pitch, element);
  std::ranges::copy(last_strides,
                    strides.begin() + static_cast<std::ptrdiff_t>(sizes.size() - 1 - last_strides.size()));
  CUtensorMap map{};
  check(encode(&map, type_of(element), static_cast<cuuint32_t>(sizes.size()), const_cast<void*>(tensor), lengths.data(),
               strides.data(), lines.data(), ones.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
               swizzle_of(box[0] * bytes_of(element)), CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
        "cuTensorMapEncodeTiled");
  return map;
}

CUtensorMap window_map(const void* images, const WindowMap& windows, MapElement element) {
  static const auto encode = driver_entry<PFN_cuTensorMapEncodeIm2col_v12000>("cuTensorMapEncodeIm2col");
  std::array<cuuint64_t, 4> lengths{};
  for (std::size_t axis = 0; axis < lengths.size(); ++axis) lengths[axis] = windows.sizes[axis];
  const auto strides = strides_of<4>(windows.sizes, windows.pitch, element);
  // Corners are in axis order, as in CUTLASS: cuda.h calls them {D, H, W} without saying from which end.
  const std::array<cuuint32_t, 4> steps{1, windows.stride[0], windows.stride[1], 1};
  const std::uint32_t channels = windows.channels == 0 ? widest_bytes / bytes_of(element) : windows.channels;
  CUtensorMap map{};
  check(encode(&map, type_of(element), 4, const_cast<void*>(images), lengths.data(), strides.data(),
               windows.lower.data(), windows.upper.data(), channels, windows.pixels, steps.data(),
               CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle_of(channels * bytes_of(element)),
               CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
        "cuTensorMapEncodeIm2col");
  return map;
}

}  // namespace lenslet::cuda
