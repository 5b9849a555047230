#pragma once
// Simulated scans of a street by a spinning LiDAR: input for sparse networks with the size and sparsity of real scans.

#include <cstdint>

#include "lenslet/tensor.h"

namespace lenslet::tool {

struct ScanOptions {
  int rings = 64;    ///< lasers, at even elevations from -24.8 to 2 degrees (as in KITTI's Velodyne HDL-64E)
  int steps = 2048;  ///< shots of a ring in one turn
  int sweeps = 1;    ///< turns, each a metre further along the street, in the coordinates of the last one
  int columns = 4;   ///< x, y, z in metres, reflectance 0 to 1; the fifth is seconds before the last sweep
  std::uint64_t seed = 1;
};

/// float32 [points, columns]: returns within 100 m from a street with facades, parked and driving cars, people and
/// poles, seen from 1.73 m above the ground. x points along the street, z up. A tenth of the shots is lost; ranges have
/// 2 cm of noise. The rings come from the lowest up, each counterclockwise. The same options give the same scan
/// wherever the standard library has the same sine. Error(invalid_argument): options below 1, columns other than 4 and
/// 5, more than 2^26 shots.
Tensor lidar_scan(const ScanOptions& options);

}  // namespace lenslet::tool
