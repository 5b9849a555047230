#pragma once
// Launchers of the sparse operators that only move features. Addresses are the device's; features of 2 or 4 bytes are
// floats of that size. Faults go to context.fault as SiteFaultWords; the result is then a value without sites, or if
// dense, of some of the sites.

#include <array>
#include <cstddef>
#include <cstdint>

#include "lenslet/tensor.h"
#include "ops/sparse/grid.h"

namespace lenslet::cuda {

struct Context;

/// SparseSort: from `rows` of indices and features to `most` sorted ones.
struct SortSizes {
  std::int64_t rows = 0, channels = 0, most = 0;
};
std::size_t sparse_sort_workspace_bytes(const SortSizes& sizes);
void sparse_sort(const Context& context, const SparseGrid& grid, const SortSizes& sizes, std::size_t element_bytes,
                 const std::int32_t* indices, const void* x, std::int32_t* to_indices, void* y, std::byte* workspace);

/// SparseVoxelize: points [images, rows, columns].
struct VoxelSizes {
  std::int64_t images = 1, rows = 0, columns = 0, most = 0;
  std::array<float, 3> low{}, size{};  ///< x, y, z
};
std::size_t sparse_voxelize_workspace_bytes(const VoxelSizes& sizes);
void sparse_voxelize(const Context& context, const SparseGrid& grid, const VoxelSizes& sizes, const float* points,
                     std::int32_t* indices, float* y, std::byte* workspace);

/// SparseToDense.
std::size_t sparse_to_dense_workspace_bytes(std::int64_t rows);
void sparse_to_dense(const Context& context, const SparseGrid& grid, std::int64_t rows, std::int64_t channels,
                     std::size_t element_bytes, const std::int32_t* indices, const void* x, void* y,
                     std::byte* workspace);

/// SparseFromDense: x [images, channels, cells of an image]; at most 2^31 - 1 cells.
std::size_t sparse_from_dense_workspace_bytes(const SparseGrid& grid);
void sparse_from_dense(const Context& context, const SparseGrid& grid, std::int64_t channels, std::int64_t most,
                       std::size_t element_bytes, const void* x, std::int32_t* indices, void* y, std::byte* workspace);

/// SparseMaxPool of float or a 16-bit type. `room`: the rulebook's capacity in pairs.
struct SparsePoolSizes {
  std::int64_t taps = 1, capacity = 0, most_inputs = 0, most_outputs = 0, channels = 0;
};
void sparse_max_pool(const Context& context, const SparsePoolSizes& sizes, DType dtype, const void* x,
                     const std::int32_t* rulebook, void* y);

}  // namespace lenslet::cuda
