#pragma once
// Point files of KITTI and nuScenes: float32 rows without a header.

#include <cstdint>
#include <filesystem>

#include "lenslet/tensor.h"

namespace lenslet::tool {

/// float32 [points, columns]. Error(io); Error(invalid_argument) if the file's size is not a whole number of points;
/// Error(limit) above 1 GiB.
Tensor read_points(const std::filesystem::path& file, std::int64_t columns);
/// Writes a temporary file beside `file` and renames it when complete. Error(io).
void write_points(const std::filesystem::path& file, const Tensor& points);

}  // namespace lenslet::tool
