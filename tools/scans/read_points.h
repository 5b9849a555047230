#pragma once
// Points as KITTI and nuScenes store them: float32 without a header, row after row.

#include <cstdint>
#include <filesystem>

#include "lenslet/tensor.h"

namespace lenslet::tool {

/// float32 [points, columns]. Error(io); Error(invalid_argument) where the file is no whole number of points;
/// Error(limit) beyond 1 GiB.
Tensor read_points(const std::filesystem::path& file, std::int64_t columns);
/// Written beside `file` and renamed when complete. Error(io).
void write_points(const std::filesystem::path& file, const Tensor& points);

}  // namespace lenslet::tool
