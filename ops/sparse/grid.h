#pragma once
// The grid that sites lie on, and what the indices of sites may hold (docs/sparse.md).

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lenslet/tensor.h"
#include "ops/core/op.h"

namespace lenslet {

/// Two or three numbers, one a spatial axis in the order of the indices (z, y, x), in a form for three: of two axes the
/// first entry is what `missing` says.
using PerAxis = std::array<std::int64_t, 3>;

/// Images of a spatial shape. Of 2-D ones the depth is 1.
struct SparseGrid {
  int dims = 3;  ///< 2 or 3
  std::int64_t images = 1;
  PerAxis size{1, 1, 1};  ///< depth, height, width

  std::int64_t cells() const { return images * size[0] * size[1] * size[2]; }
  /// "2 images of 41x1440x1440".
  std::string str() const;
};

/// The attributes spatial_shape (2 or 3 entries) and images (1). Error(invalid_model) unless all cells, `room` more on
/// each axis, can be counted in 62 bits.
SparseGrid read_grid(AttributeReader& reader);
void append_grid(AttributeList& list, const SparseGrid& grid);
/// Error(invalid_model) unless keys of the grid with so much room behind each axis fit 62 bits.
void require_countable(const SparseGrid& grid, const PerAxis& room);

/// An attribute that bounds how many of something there are, where it is given; Error(invalid_model) outside 31 bits.
std::optional<std::int64_t> read_bound(AttributeReader& reader, const char* name);

/// A list of `dims` entries, or nothing: `fallback` for each. Error(invalid_model) outside [least, most].
PerAxis read_per_axis(AttributeReader& reader, const char* name, int dims, std::int64_t fallback, std::int64_t missing,
                      std::int64_t least, std::int64_t most);
/// The last `dims` entries.
std::vector<std::int64_t> last_axes(const PerAxis& values, int dims);

/// Of a value of indices: int32 [bound, 1 + dims]; Error(invalid_model).
void require_indices(const TensorType& type, int dims);
/// Of an operator whose inputs are indices and features [bound, C], a row for each: the latter; Error(invalid_model).
const TensorType& require_features(std::span<const InputInfo> inputs, int dims);

/// Numbers of cells in row-major order, with `room` cells behind the end of each axis that no site lies in: a step by
/// up to that many cells along an axis is the addition of a constant, and never meets a site of another line.
struct SiteKeys {
  PerAxis pitch{1, 1, 1};  ///< of a plane's lines, and so on: key = ((image * pitch0 + z) * pitch1 + y) * pitch2 + x

  explicit SiteKeys(const SparseGrid& grid, const PerAxis& room = {0, 0, 0})
      : pitch{grid.size[0] + room[0], grid.size[1] + room[1], grid.size[2] + room[2]} {}
  std::int64_t operator()(std::int64_t image, std::int64_t z, std::int64_t y, std::int64_t x) const {
    return ((image * pitch[0] + z) * pitch[1] + y) * pitch[2] + x;
  }
  /// A step's.
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
/// The site of a cell's number, as SiteKeys without room counts them, in row `i`.
void put_cell(std::int32_t* indices, const SparseGrid& grid, std::int64_t i, std::int64_t cell);
/// "(0, 3, 17, 5)" as the row has it.
std::string site_text(const std::int32_t* indices, int dims, std::int64_t i);

inline bool on_grid(const SparseGrid& grid, const std::array<std::int32_t, 4>& site) {
  return site[0] >= 0 && site[0] < grid.images && site[1] >= 0 && site[1] < grid.size[0] && site[2] >= 0 &&
         site[2] < grid.size[1] && site[3] >= 0 && site[3] < grid.size[2];
}

/// How many sites there are: rows in front of the first whose image is negative. Writes their keys to `keys` [bound]
/// where that is not null. Error(invalid_argument) for a site outside the grid, before a smaller one or equal to the
/// one before it, or behind a row that holds none. Serial: 160,000 sites take 0.3 ms.
std::int64_t read_sites(const std::int32_t* indices, std::int64_t bound, const SparseGrid& grid, const SiteKeys& key,
                        std::int64_t* keys);

/// "171234 sites, more than the bound of 160000 (max_sites)", and the Error(invalid_argument) of it.
std::string count_text(std::int64_t count, std::int64_t bound, const char* what, const char* attribute);
[[noreturn]] void refuse_count(std::int64_t count, std::int64_t bound, const char* what, const char* attribute);

}  // namespace lenslet
