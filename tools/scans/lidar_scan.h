#pragma once
// Scans as a spinning LiDAR makes them, of a street that is drawn: something to run sparse networks on, of the size and
// the sparsity of real ones.

#include <cstdint>

#include "lenslet/tensor.h"

namespace lenslet::tool {

struct ScanOptions {
  int rings = 64;    ///< lasers, their elevations evenly from -24.8 to 2 degrees (Velodyne's HDL-64E, as KITTI used it)
  int steps = 2048;  ///< shots of a ring in a turn
  int sweeps = 1;    ///< turns, each a metre further along the street; all seen from where the last one stood
  int columns = 4;   ///< x, y, z in metres, reflectance 0 to 1; and, with 5, seconds before the last sweep
  std::uint64_t seed = 1;
};

/// float32 [points, columns]: what came back within 100 m of a street with facades, parked and driving cars, people and
/// poles, 1.73 m above the ground; x points along the street, z up. A tenth of the shots is lost, ranges have noise of
/// 2 cm. Rings from the lowest, each counterclockwise. The same options give the same scan wherever the standard
/// library has the same sine. Error(invalid_argument): options below 1, columns other than 4 and 5, more than 2^26
/// shots.
Tensor lidar_scan(const ScanOptions& options);

}  // namespace lenslet::tool
