#pragma once
// The grid of sites, and what indices of sites may contain (docs/sparse.md).

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lenslet/tensor.h"
#include "ops/core/op.h"

namespace lenslet {

/// A number per spatial axis, in the order of the indices (z, y, x). With two axes the first entry is `missing`.
using PerAxis = std::array<std::int64_t, 3>;

/// Images of a spatial shape. 2-D ones have depth 1.
struct SparseGrid {
  int dims = 3;  ///< 2 or 3
  std::int64_t images = 1;
  PerAxis size{1, 1, 1};  ///< depth, height, width

  std::int64_t cells() const { return images * size[0] * size[1] * size[2]; }
  /// "2 images of 41x1440x1440".
  std::string str() const;
};

/// The attributes spatial_shape (2 or 3 entries) and images (1). Error(invalid_model) unless 62 bits can count all
/// cells, with `room` more on each axis.
SparseGrid read_grid(AttributeReader& reader);
void append_grid(AttributeList& list, const SparseGrid& grid);
/// Error(invalid_model) unless keys of the grid with that margin behind each axis fit 62 bits.
void require_countable(const SparseGrid& grid, const PerAxis& room);

/// An optional attribute with a maximum count; Error(invalid_model) outside 31 bits.
std::optional<std::int64_t> read_bound(AttributeReader& reader, const char* name);

/// A list of `dims` entries, by default `fallback` each. Error(invalid_model) outside [least, most].
PerAxis read_per_axis(AttributeReader& reader, const char* name, int dims, std::int64_t fallback, std::int64_t missing,
                      std::int64_t least, std::int64_t most);
/// The last `dims` entries.
std::vector<std::int64_t> last_axes(const PerAxis& values, int dims);

/// Checks the type of indices: int32 [bound, 1 + dims]; Error(invalid_model).
void require_indices(const TensorType& type, int dims);
/// The features [bound, C] of an operator on indices and features with equal rows; Error(invalid_model).
const TensorType& require_features(std::span<const InputInfo> inputs, int dims);

/// Row-major cell numbers with `room` unused cells behind each axis: a step of up to `room` cells along an axis is the
/// addition of a constant, and never reaches a site of another line.
struct SiteKeys {
  PerAxis pitch{1, 1, 1};  ///< of a plane's lines, and so on: key = ((image * pitch0 + z) * pitch1 + y) * pitch2 + x

  explicit SiteKeys(const SparseGrid& grid, const PerAxis& room = {0, 0, 0})
      : pitch{grid.size[0] + room[0], grid.size[1] + room[1], grid.size[2] + room[2]} {}
  std::int64_t operator()(std::int64_t image, std::int64_t z, std::int64_t y, std::int64_t x) const {
    return ((image * pitch[0] + z) * pitch[1] + y) * pitch[2] + x;
  }
  /// The key difference of a step.
  std::int64_t step(const PerAxis& by) const { return (by[0] * pitch[1] + by[1]) * pitch[2] + by[2]; }
};

/// Row `i` of indices [bound, 1 + dims] as (image, z, y, x).
inline std::array<std::int32_t, 4> site_at(const std::int32_t* indices, int dims, std::int64_t i) {
  const std::int32_t* const row = indices + i * (1 + dims);
  return dims == 2 ? std::array<std::int32_t, 4>{row[0], 0, row[1], row[2]}
                   : std::array<std::int32_t, 4>{row[0], row[1], row[2], row[3]};
}
inline void put_site(std::int32_t* indices, int dims, std::int64_t i, const std::array<std::int32_t, 4>& site) {
  std::int32_t* const row = indices + i * (1 + dims);
  row[0] = site[0];
  for (int a = 0; a < dims; ++a) row[1 + a] = site[static_cast<std::size_t>(4 - dims + a)];
}
/// Writes the site with a cell's number (SiteKeys without room) to row `i`.
void put_cell(std::int32_t* indices, const SparseGrid& grid, std::int64_t i, std::int64_t cell);
/// "(0, 3, 17, 5)" as the row has it.
std::string site_text(const std::int32_t* indices, int dims, std::int64_t i);

inline bool on_grid(const SparseGrid& grid, const std::array<std::int32_t, 4>& site) {
  return site[0] >= 0 && site[0] < grid.images && site[1] >= 0 && site[1] < grid.size[0] && site[2] >= 0 &&
         site[2] < grid.size[1] && site[3] >= 0 && site[3] < grid.size[2];
}

/// The number of sites: rows before the first negative image. Writes their keys to `keys` [bound] unless null.
/// Error(invalid_argument) for sites outside the grid, unsorted or repeated ones, or ones behind an empty row. Serial:
/// 160,000 sites take 0.3 ms.
std::int64_t read_sites(const std::int32_t* indices, std::int64_t bound, const SparseGrid& grid, const SiteKeys& key,
                        std::int64_t* keys);

/// "171234 sites, more than the bound of 160000 (max_sites)", and the Error(invalid_argument) with it.
std::string count_text(std::int64_t count, std::int64_t bound, const char* what, const char* attribute);
[[noreturn]] void refuse_count(std::int64_t count, std::int64_t bound, const char* what, const char* attribute);

}  // namespace lenslet
