#include "ops/sparse/grid.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/core/checks.h"
#include "ops/sparse/site_fault.h"

namespace lenslet {

namespace {

// Coordinates are int32, with a margin for windows.
constexpr std::int64_t most_cells_of_axis = std::int64_t{1} << 30;

std::string sites_text(const SparseGrid& grid) {
  const std::vector<std::int64_t> sizes = last_axes(grid.size, grid.dims);
  std::string text = fmt::format("{}", sizes[0]);
  for (std::size_t i = 1; i < sizes.size(); ++i) text += fmt::format("x{}", sizes[i]);
  return text;
}

}  // namespace

std::string SparseGrid::str() const {
  return fmt::format("{} image{} of {}", images, images == 1 ? "" : "s", sites_text(*this));
}

std::vector<std::int64_t> last_axes(const PerAxis& values, int dims) { return {values.end() - dims, values.end()}; }

PerAxis read_per_axis(AttributeReader& reader, const char* name, int dims, std::int64_t fallback, std::int64_t missing,
                      std::int64_t least, std::int64_t most) {
  const std::vector<std::int64_t> list = reader.integers(name);
  PerAxis values{fallback, fallback, fallback};
  if (dims == 2) values[0] = missing;
  if (list.empty()) return values;
  if (list.size() != static_cast<std::size_t>(dims))
    throw Error(ErrorKind::invalid_model,
                fmt::format("attribute {} has {} entries for {} spatial axes", name, list.size(), dims));
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i] < least || list[i] > most)
      throw Error(ErrorKind::invalid_model,
                  fmt::format("attribute {} has an entry {} outside [{}, {}]", name, list[i], least, most));
    values[values.size() - list.size() + i] = list[i];
  }
  return values;
}

std::optional<std::int64_t> read_bound(AttributeReader& reader, const char* name) {
  if (!reader.has(name)) return std::nullopt;
  const std::int64_t bound = reader.required_integer(name);
  if (bound < 0 || bound > INT32_MAX)
    throw Error(ErrorKind::invalid_model, fmt::format("attribute {} is {}", name, bound));
  return bound;
}

void put_cell(std::int32_t* indices, const SparseGrid& grid, std::int64_t i, std::int64_t cell) {
  std::array<std::int32_t, 4> site{};
  for (std::size_t a = 3; a > 0; --a) {
    site[a] = static_cast<std::int32_t>(cell % grid.size[a - 1]);
    cell /= grid.size[a - 1];
  }
  site[0] = static_cast<std::int32_t>(cell);
  put_site(indices, grid.dims, i, site);
}

SparseGrid read_grid(AttributeReader& reader) {
  const std::size_t entries = reader.integers("spatial_shape").size();
  if (entries != 2 && entries != 3)
    throw Error(entries == 0 ? ErrorKind::invalid_model : ErrorKind::unsupported,
                fmt::format("attribute spatial_shape has {} entries; 2-D and 3-D are supported", entries));
  SparseGrid grid;
  grid.dims = static_cast<int>(entries);
  grid.size = read_per_axis(reader, "spatial_shape", grid.dims, 1, 1, 1, most_cells_of_axis);
  grid.images = reader.integer("images", 1);
  if (grid.images < 1 || grid.images > most_cells_of_axis)
    throw Error(ErrorKind::invalid_model, fmt::format("attribute images is {}", grid.images));
  require_countable(grid, {0, 0, 0});
  return grid;
}

void append_grid(AttributeList& list, const SparseGrid& grid) {
  list.emplace_back("spatial_shape", last_axes(grid.size, grid.dims));
  list.emplace_back("images", grid.images);
}

void require_countable(const SparseGrid& grid, const PerAxis& room) {
  std::int64_t cells = grid.images;
  for (std::size_t a = 0; a < 3; ++a)
    if (__builtin_mul_overflow(cells, grid.size[a] + room[a], &cells) || cells >= std::int64_t{1} << 62)
      throw Error(ErrorKind::invalid_model, fmt::format("{} have more cells than 62 bits can count", grid.str()));
}

void require_indices(const TensorType& type, int dims) {
  require_dtype("indices", type.dtype, {DType::i32});
  require_rank("indices", type.shape, 2, 2);
  if (type.shape[1] != 1 + dims)
    throw Error(ErrorKind::invalid_model,
                fmt::format("indices have shape {}, expected [sites,{}]: image and {} coordinates", type.shape.str(),
                            1 + dims, dims));
}

const TensorType& require_features(std::span<const InputInfo> inputs, int dims) {
  const TensorType& indices = required_input(inputs, 0, "indices");
  const TensorType& x = required_input(inputs, 1, "features");
  require_indices(indices, dims);
  require_rank("features", x.shape, 2, 2);
  if (x.shape[0] != indices.shape[0])
    throw Error(ErrorKind::invalid_model, fmt::format("features {} of indices {}", x.shape.str(), indices.shape.str()));
  return x;
}

std::string site_text(const std::int32_t* indices, int dims, std::int64_t i) {
  std::string text = "(";
  for (int a = 0; a <= dims; ++a) text += fmt::format("{}{}", a == 0 ? "" : ", ", indices[i * (1 + dims) + a]);
  return text + ")";
}

std::int64_t read_sites(const std::int32_t* indices, std::int64_t bound, const SparseGrid& grid, const SiteKeys& key,
                        std::int64_t* keys) {
  const auto fail = [&](std::int64_t i, SiteFault kind, std::int64_t other = -1) {
    SiteFaultWords words{.kind = kind, .row = static_cast<std::int32_t>(i), .other = static_cast<std::int32_t>(other)};
    std::copy_n(indices + i * (1 + grid.dims), 1 + grid.dims, words.site);
    throw Error(ErrorKind::invalid_argument, site_fault_text(words, {.grid = grid}));
  };
  std::int64_t count = 0, last = -1;
  for (; count < bound; ++count) {
    const std::array<std::int32_t, 4> site = site_at(indices, grid.dims, count);
    if (site[0] < 0) break;
    if (!on_grid(grid, site)) fail(count, SiteFault::outside);
    const std::int64_t own = key(site[0], site[1], site[2], site[3]);
    if (own <= last) fail(count, own == last ? SiteFault::twice : SiteFault::out_of_order);
    last = own;
    if (keys != nullptr) keys[count] = own;
  }
  for (std::int64_t i = count; i < bound; ++i)
    if (indices[i * (1 + grid.dims)] >= 0) fail(i, SiteFault::behind_empty, count);
  return count;
}

std::string count_text(std::int64_t count, std::int64_t bound, const char* what, const char* attribute) {
  return fmt::format("{} {}, more than the bound of {} ({})", count, what, bound, attribute);
}

void refuse_count(std::int64_t count, std::int64_t bound, const char* what, const char* attribute) {
  throw Error(ErrorKind::invalid_argument, count_text(count, bound, what, attribute));
}

}  // namespace lenslet
