// References of the operators on sparse values (docs/sparse.md): sites in ordered maps, pairs tap by tap.

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "lenslet/error.h"
#include "oracle/families.h"

namespace lenslet::oracle {

namespace {

/// Image and coordinates, in the order of a site list.
using Site = std::vector<std::int64_t>;

std::vector<Site> sites_of(const Array& indices) {
  const std::int64_t rows = indices.shape[0], width = indices.shape[1];
  std::vector<Site> sites;
  for (std::int64_t i = 0; i < rows; ++i) {
    const auto* const row = indices.values.data() + i * width;
    if (row[0] >= 0) sites.emplace_back(row, row + width);
  }
  return sites;
}

Array none(const Shape& shape) {
  Array array = zeros(shape, DType::i32);
  std::fill(array.values.begin(), array.values.end(), -1.0);
  return array;
}

Array indices_of(const std::vector<Site>& sites, std::int64_t bound, std::int64_t width) {
  if (static_cast<std::int64_t>(sites.size()) > bound)
    throw Error(ErrorKind::invalid_argument, "more sites than the bound");
  Array array = none({bound, width});
  for (std::size_t i = 0; i < sites.size(); ++i)
    std::copy(sites[i].begin(), sites[i].end(), array.values.begin() + static_cast<std::ptrdiff_t>(i) * width);
  return array;
}

struct Window {
  std::string kind;
  std::vector<std::int64_t> size, kernel, stride, dilation, pads, extra;
  std::int64_t images;

  explicit Window(const AttributeList& attributes)
      : kind(text(attributes, "kind", "submanifold")),
        size(integers(attributes, "spatial_shape")),
        kernel(integers(attributes, "kernel_shape")),
        stride(integers(attributes, "strides", std::vector<std::int64_t>(size.size(), 1))),
        dilation(integers(attributes, "dilations", std::vector<std::int64_t>(size.size(), 1))),
        pads(integers(attributes, "pads", std::vector<std::int64_t>(2 * size.size(), 0))),
        extra(integers(attributes, "output_padding", std::vector<std::int64_t>(size.size(), 0))),
        images(integer(attributes, "images", 1)) {}

  std::int64_t out_size(std::size_t a) const {
    const std::int64_t span = dilation[a] * (kernel[a] - 1) + 1, zeros = pads[a] + pads[a + size.size()];
    if (kind == "submanifold") return size[a];
    return kind == "regular" ? (size[a] + zeros - span) / stride[a] + 1
                             : (size[a] - 1) * stride[a] - zeros + span + extra[a];
  }
  /// The output that input `in` reaches through a tap; false if there is none.
  bool output(const Site& in, const Index& tap, Site& out) const {
    out = in;
    for (std::size_t a = 0; a < size.size(); ++a) {
      std::int64_t at = 0;
      if (kind == "submanifold") {
        at = in[1 + a] - (tap[a] - kernel[a] / 2) * dilation[a];
      } else if (kind == "transposed") {
        at = in[1 + a] * stride[a] + tap[a] * dilation[a] - pads[a];
      } else {
        at = in[1 + a] + pads[a] - tap[a] * dilation[a];
        if (at < 0 || at % stride[a] != 0) return false;
        at /= stride[a];
      }
      if (at < 0 || at >= out_size(a)) return false;
      out[1 + a] = at;
    }
    return true;
  }
};

/// Calls f(tap, input, output) for every pair of a rulebook, also those that a submanifold rulebook omits.
template <typename F>
std::int64_t for_each_pair(const Array& book, std::int64_t taps, const std::string& kind, const F& f) {
  const bool submanifold = kind == "submanifold", inverse = kind == "inverse";
  const std::int64_t stored = submanifold ? taps / 2 : taps, room = (book.shape[0] - 3 - stored) / 2;
  const auto value = [&](std::int64_t i) {
    return static_cast<std::int64_t>(book.values[static_cast<std::size_t>(i)]);
  };
  const std::int64_t outputs = value(inverse ? 0 : 1);
  for (std::int64_t t = 0; t < stored; ++t)
    for (std::int64_t p = value(2 + t); p < value(3 + t); ++p) {
      const std::int64_t in = value(3 + stored + p), out = value(3 + stored + room + p);
      if (inverse)
        f(t, out, in);
      else
        f(t, in, out);
      if (submanifold) f(taps - 1 - t, out, in);
    }
  if (submanifold)
    for (std::int64_t i = 0; i < outputs; ++i) f(taps / 2, i, i);
  return outputs;
}

/// For each tap and output its input, or -1; rows are padded to a multiple of four.
Array table_of(const Array& book, std::int64_t taps, std::int64_t max_sites, const std::string& kind) {
  Array table = none({taps, (max_sites + 3) / 4 * 4});
  for_each_pair(book, taps, kind, [&](std::int64_t tap, std::int64_t in, std::int64_t out) {
    table.values[static_cast<std::size_t>(tap * table.shape[1] + out)] = static_cast<double>(in);
  });
  return table;
}

std::vector<Array> rulebook(const AttributeList& attributes, Inputs inputs) {
  const Window window(attributes);
  const std::vector<Site> sites = sites_of(at(inputs, 0));
  const std::int64_t bound = at(inputs, 0).shape[0];
  const bool submanifold = window.kind == "submanifold";
  const Shape taps{std::span(window.kernel)};
  const std::int64_t stored = submanifold ? taps.elems() / 2 : taps.elems();

  std::map<Site, std::int64_t> outputs;
  Site out;
  if (submanifold)
    for (const Site& site : sites) outputs[site] = 0;
  else
    for (const Site& site : sites)
      for (std::int64_t t = 0; t < stored; ++t)
        if (window.output(site, index_of(taps, t), out)) outputs[out] = 0;
  std::vector<Site> out_sites;
  for (auto& [site, number] : outputs) {
    number = static_cast<std::int64_t>(out_sites.size());
    out_sites.push_back(site);
  }
  std::vector<std::int64_t> ins, outs, begins{0};
  for (std::int64_t t = 0; t < stored; ++t) {
    for (std::size_t i = 0; i < sites.size(); ++i) {
      if (!window.output(sites[i], index_of(taps, t), out)) continue;
      const auto found = outputs.find(out);
      if (found == outputs.end()) continue;
      ins.push_back(static_cast<std::int64_t>(i));
      outs.push_back(found->second);
    }
    begins.push_back(static_cast<std::int64_t>(ins.size()));
  }

  // Upper bounds by the number of rows.
  std::int64_t max_sites = bound, max_pairs = bound * stored;
  if (!submanifold) {
    std::int64_t meetings = bound, cells = window.images;
    for (std::size_t a = 0; a < window.size.size(); ++a) {
      const std::int64_t period =
          window.kind == "transposed" ? 1 : window.stride[a] / std::gcd(window.stride[a], window.dilation[a]);
      meetings *= std::min((window.kernel[a] + period - 1) / period, window.out_size(a));
      cells *= window.out_size(a);
    }
    max_sites = integer(attributes, "max_sites", std::min(meetings, cells));
    max_pairs = std::min(meetings, max_sites * stored);
  }
  max_pairs = integer(attributes, "max_pairs", max_pairs);
  if (static_cast<std::int64_t>(ins.size()) > max_pairs)
    throw Error(ErrorKind::invalid_argument, "more pairs than the bound");
  Array book = none({3 + stored + 2 * max_pairs});
  const auto put = [&](std::int64_t where, const std::vector<std::int64_t>& values) {
    std::copy(values.begin(), values.end(), book.values.begin() + where);
  };
  put(0, {static_cast<std::int64_t>(sites.size()), static_cast<std::int64_t>(out_sites.size())});
  put(2, begins);
  put(3 + stored, ins);
  put(3 + stored + max_pairs, outs);
  std::vector<Array> made{std::move(book)};
  if (!submanifold) made.push_back(indices_of(out_sites, max_sites, at(inputs, 0).shape[1]));
  if (integer(attributes, "neighbours", 0) != 0)
    made.push_back(table_of(made[0], taps.elems(), max_sites, window.kind));
  return made;
}

std::vector<Array> conv(const AttributeList& attributes, Inputs inputs) {
  const Array &x = at(inputs, 0), &book = at(inputs, 1), &w = at(inputs, 2);
  const std::int64_t channels = x.shape[1], filters = w.shape[0], taps = w.shape.elems() / (filters * channels);
  const std::int64_t rows = has(inputs, 3) ? at(inputs, 3).shape[0] : x.shape[0];
  std::vector<double> scale(static_cast<std::size_t>(filters), 1.0);
  for (const auto& [name, value] : attributes)
    if (name == "weight_scale") scale = std::get<std::vector<double>>(value);
  Array y = sums({rows, filters}, x.dtype);
  const std::int64_t outputs = for_each_pair(
      book, taps, text(attributes, "kind", "submanifold"), [&](std::int64_t tap, std::int64_t in, std::int64_t out) {
        for (std::int64_t k = 0; k < filters; ++k)
          for (std::int64_t c = 0; c < channels; ++c) {
            const double term = x.values[static_cast<std::size_t>(in * channels + c)] *
                                scale[static_cast<std::size_t>(k)] *
                                w.values[static_cast<std::size_t>((k * channels + c) * taps + tap)];
            y.values[static_cast<std::size_t>(out * filters + k)] += term;
            y.scale[static_cast<std::size_t>(out * filters + k)] += term * term;
          }
      });
  const auto activation = fused_activation(attributes);
  for (std::int64_t i = 0; i < outputs * filters; ++i) {
    const auto to = static_cast<std::size_t>(i);
    Sum sum{y.values[to], y.scale[to]};
    if (has(inputs, 4)) sum.add(at(inputs, 4).values[static_cast<std::size_t>(i % filters)]);
    if (has(inputs, 5)) sum.add(at(inputs, 5).values[to]);
    put(y, to, activation ? through(activation, sum.value, sum.scale()) : Scaled{sum.value, sum.scale()});
  }
  return {y};
}

std::vector<Array> max_pool(const AttributeList& attributes, Inputs inputs) {
  const Array& x = at(inputs, 0);
  const std::int64_t channels = x.shape[1];
  Array y = zeros({at(inputs, 2).shape[0], channels}, x.dtype);
  std::vector<bool> met(y.values.size(), false);
  const std::vector<std::int64_t> kernel = integers(attributes, "kernel_shape");
  const Shape taps{std::span(kernel)};
  for_each_pair(at(inputs, 1), taps.elems(), "regular", [&](std::int64_t, std::int64_t in, std::int64_t out) {
    for (std::int64_t c = 0; c < channels; ++c) {
      const auto to = static_cast<std::size_t>(out * channels + c);
      const double value = x.values[static_cast<std::size_t>(in * channels + c)];
      if (!met[to] || value > y.values[to] || std::isnan(value)) y.values[to] = value;
      met[to] = true;
    }
  });
  return {y};
}

std::vector<Array> to_dense(const AttributeList& attributes, Inputs inputs) {
  const Array& x = at(inputs, 1);
  const std::int64_t channels = x.shape[1];
  std::vector<std::int64_t> dims{integer(attributes, "images", 1), channels};
  for (const std::int64_t size : integers(attributes, "spatial_shape")) dims.push_back(size);
  Array y = zeros(Shape(std::span<const std::int64_t>(dims)), x.dtype);
  const std::vector<Site> sites = sites_of(at(inputs, 0));
  for (std::size_t i = 0; i < sites.size(); ++i)
    for (std::int64_t c = 0; c < channels; ++c) {
      Site cell = sites[i];
      cell.insert(cell.begin() + 1, c);
      y.values[static_cast<std::size_t>(flat_of(y.shape, cell))] =
          x.values[i * static_cast<std::size_t>(channels) + static_cast<std::size_t>(c)];
    }
  return {y};
}

std::vector<Array> from_dense(const AttributeList& attributes, Inputs inputs) {
  const Array& x = at(inputs, 0);
  const std::int64_t channels = x.shape[1];
  std::map<Site, std::vector<double>> found;
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    if (x.values[i] == 0) continue;
    const Index index = index_of(x.shape, static_cast<std::int64_t>(i));
    Site cell(index.begin(), index.end());
    const std::int64_t channel = cell[1];
    cell.erase(cell.begin() + 1);
    auto& features = found[cell];
    features.resize(static_cast<std::size_t>(channels));
    features[static_cast<std::size_t>(channel)] = x.values[i];
  }
  const std::int64_t cells = x.shape.with(1, 1).elems();
  const std::int64_t bound = integer(attributes, "max_sites", cells);
  Array y = zeros({bound, channels}, x.dtype);
  std::vector<Site> sites;
  for (const auto& [site, features] : found) {
    const auto to = static_cast<std::ptrdiff_t>(sites.size()) * channels;
    sites.push_back(site);
    if (static_cast<std::int64_t>(sites.size()) <= bound)
      std::copy(features.begin(), features.end(), y.values.begin() + to);
  }
  return {indices_of(sites, bound, x.shape.rank() - 1), y};
}

std::vector<Array> sort(const AttributeList& attributes, Inputs inputs) {
  const Array &indices = at(inputs, 0), &x = at(inputs, 1);
  const std::int64_t width = indices.shape[1], channels = x.shape[1];
  std::map<Site, std::int64_t> rows;
  for (std::int64_t i = 0; i < indices.shape[0]; ++i) {
    const auto* const row = indices.values.data() + i * width;
    if (row[0] >= 0 && !rows.emplace(Site(row, row + width), i).second)
      throw Error(ErrorKind::invalid_argument, "a site occurs twice");
  }
  const std::int64_t bound = integer(attributes, "max_sites", indices.shape[0]);
  Array y = zeros({bound, channels}, x.dtype);
  std::vector<Site> sites;
  for (const auto& [site, row] : rows) {
    const auto to = static_cast<std::ptrdiff_t>(sites.size()) * channels;
    sites.push_back(site);
    if (static_cast<std::int64_t>(sites.size()) <= bound)
      std::copy_n(x.values.begin() + row * channels, channels, y.values.begin() + to);
  }
  return {indices_of(sites, bound, width), y};
}

std::vector<Array> voxelize(const AttributeList& attributes, Inputs inputs) {
  const Array& points = at(inputs, 0);
  const std::vector<double> size = reals(attributes, "voxel_size"), low = reals(attributes, "range_min"),
                            high = reals(attributes, "range_max");
  const int last = points.shape.rank() - 1;
  const std::int64_t columns = points.shape[last], rows = points.shape[last - 1];
  const std::int64_t images = last == 2 ? points.shape[0] : 1;
  std::map<Site, std::vector<std::int64_t>> cells;
  double all = static_cast<double>(images);
  for (std::size_t a = 0; a < 3; ++a) all *= std::round((high[a] - low[a]) / size[a]);
  for (std::int64_t i = 0; i < images * rows; ++i) {
    Site site{i / rows, 0, 0, 0};
    bool inside = true;
    for (std::size_t a = 0; a < 3; ++a) {
      // The cell of a point is defined in float32; later values are not.
      const auto x = static_cast<float>(points.values[static_cast<std::size_t>(i * columns) + a]);
      const float cell = std::floor((x - static_cast<float>(low[a])) / static_cast<float>(size[a]));
      inside = inside && cell >= 0 && cell < std::round((high[a] - low[a]) / size[a]);
      if (inside) site[3 - a] = static_cast<std::int64_t>(cell);
    }
    if (inside) cells[site].push_back(i);
  }
  const auto most = static_cast<std::int64_t>(std::min(static_cast<double>(images * rows), all));
  const std::int64_t bound = integer(attributes, "max_sites", most);
  Array y = sums({bound, columns}, points.dtype);
  std::vector<Site> sites;
  for (const auto& [site, members] : cells) {
    const auto to = static_cast<std::int64_t>(sites.size());
    sites.push_back(site);
    if (to >= bound) continue;
    for (std::int64_t c = 0; c < columns; ++c) {
      Sum sum;
      for (const std::int64_t i : members) sum.add(points.values[static_cast<std::size_t>(i * columns + c)]);
      const auto count = static_cast<double>(members.size());
      put(y, static_cast<std::size_t>(to * columns + c), Scaled{sum.value / count, sum.scale() / count});
    }
  }
  return {indices_of(sites, bound, 4), y};
}

constexpr Entry entries[] = {{"SparseVoxelize", voxelize},   {"SparseSort", sort},        {"SparseRulebook", rulebook},
                             {"SparseConv", conv},           {"SparseMaxPool", max_pool}, {"SparseToDense", to_dense},
                             {"SparseFromDense", from_dense}};

}  // namespace

std::span<const Entry> sparse_entries() { return entries; }

}  // namespace lenslet::oracle
