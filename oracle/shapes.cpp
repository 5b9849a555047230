// References of operators that reshape, reorder and copy: output element by element, from its index.

#include <algorithm>
#include <utility>

#include "lenslet/error.h"
#include "oracle/families.h"

namespace lenslet::oracle {

namespace {

using Dims = std::vector<std::int64_t>;

[[noreturn]] void refuse(const std::string& what) { throw Error(ErrorKind::invalid_argument, "oracle: " + what); }

// An attribute, or the input that replaced it in later opsets.
std::vector<std::int64_t> argument(const AttributeList& attributes, std::string_view name, Inputs inputs,
                                   std::size_t input) {
  if (has(attributes, name)) return integers(attributes, name);
  return has(inputs, input) ? as_integers(inputs[input]) : std::vector<std::int64_t>{};
}

// y[index] = x[source(index)] for all indices of `shape`.
template <typename F>
std::vector<Array> pick(const Array& x, const Dims& dims, const F& source) {
  Array y = zeros(Shape(dims), x.dtype);
  for (std::int64_t i = 0; i < y.shape.elems(); ++i)
    y.values[static_cast<std::size_t>(i)] =
        x.values[static_cast<std::size_t>(flat_of(x.shape, source(index_of(y.shape, i))))];
  return {y};
}

std::vector<Array> with_shape(Array x, const Dims& dims) {
  x.shape = Shape(dims);
  if (static_cast<std::size_t>(x.shape.elems()) != x.values.size()) refuse("a view of another size");
  return {x};
}

Dims dims_of(const Array& x) { return {x.shape.dims().begin(), x.shape.dims().end()}; }

std::vector<Array> identity(const AttributeList&, Inputs inputs) { return {at(inputs, 0)}; }

std::vector<Array> dropout(const AttributeList& attributes, Inputs inputs) {
  const Array& x = at(inputs, 0);
  Array mask = zeros(x.shape, text(attributes, "mask", "bool") == "bool" ? DType::boolean : x.dtype);
  std::ranges::fill(mask.values, 1.0);
  return {x, mask};
}

std::vector<Array> reshape(const AttributeList& attributes, Inputs inputs) {
  const Array& x = at(inputs, 0);
  Dims dims = as_integers(at(inputs, 1));
  const bool allow_zero = integer(attributes, "allowzero", 0) != 0;
  for (std::size_t i = 0; i < dims.size(); ++i)
    if (dims[i] == 0 && !allow_zero) dims[i] = dims_of(x).at(i);
  const auto wild = std::ranges::find(dims, -1);
  if (wild != dims.end()) {
    std::int64_t known = 1;
    for (const std::int64_t dim : dims)
      if (dim != -1) known *= dim;
    if (known == 0) refuse("a -1 beside a 0");
    *wild = x.shape.elems() / known;
  }
  return with_shape(x, dims);
}

std::vector<Array> flatten(const AttributeList& attributes, Inputs inputs) {
  const Array& x = at(inputs, 0);
  std::int64_t axis = integer(attributes, "axis", 1);
  if (axis < 0) axis += x.shape.rank();
  Dims dims{1, 1};
  for (int i = 0; i < x.shape.rank(); ++i) dims[i < axis ? 0 : 1] *= x.shape[i];
  return with_shape(x, dims);
}

std::vector<Array> squeeze(const AttributeList& attributes, Inputs inputs) {
  const Array& x = at(inputs, 0);
  const bool all = !has(attributes, "axes") && !has(inputs, 1);
  std::vector<bool> drop(static_cast<std::size_t>(x.shape.rank()), false);
  for (const std::int64_t axis : argument(attributes, "axes", inputs, 1))
    drop[static_cast<std::size_t>(axis_of(axis, x.shape.rank()))] = true;
  Dims dims;
  for (std::size_t i = 0; i < drop.size(); ++i)
    if (!(all ? dims_of(x)[i] == 1 : drop[i])) dims.push_back(dims_of(x)[i]);
  return with_shape(x, dims);
}

std::vector<Array> unsqueeze(const AttributeList& attributes, Inputs inputs) {
  const Array& x = at(inputs, 0);
  std::vector<std::int64_t> axes = argument(attributes, "axes", inputs, 1);
  const int rank = x.shape.rank() + static_cast<int>(axes.size());
  for (std::int64_t& axis : axes) axis = axis_of(axis, rank);
  std::ranges::sort(axes);
  Dims dims = dims_of(x);
  for (const std::int64_t axis : axes) dims.insert(dims.begin() + axis, 1);
  return with_shape(x, dims);
}

std::vector<Array> transpose(const AttributeList& attributes, Inputs inputs) {
  const Array& x = at(inputs, 0);
  std::vector<std::int64_t> perm = integers(attributes, "perm");
  if (perm.empty())
    for (int i = x.shape.rank() - 1; i >= 0; --i) perm.push_back(i);
  Dims dims;
  for (const std::int64_t axis : perm) dims.push_back(x.shape[static_cast<int>(axis)]);
  return pick(x, dims, [&](const Index& index) {
    Index source(index.size());
    for (std::size_t i = 0; i < index.size(); ++i) source[static_cast<std::size_t>(perm[i])] = index[i];
    return source;
  });
}

std::vector<Array> concat(const AttributeList& attributes, Inputs inputs) {
  const Array& first = at(inputs, 0);
  const int axis = axis_of(integer(attributes, "axis", 0), first.shape.rank());
  std::int64_t total = 0;
  for (const Array& x : inputs) total += x.shape[axis];
  std::vector<std::pair<std::size_t, std::int64_t>> sources;  // by position along the axis: the input, and where in it
  for (std::size_t k = 0; k < inputs.size(); ++k)
    for (std::int64_t i = 0; i < inputs[k].shape[axis]; ++i) sources.emplace_back(k, i);
  Array y = zeros(first.shape.with(axis, total), first.dtype);
  for (std::int64_t i = 0; i < y.shape.elems(); ++i) {
    Index index = index_of(y.shape, i);
    std::int64_t& along = index[static_cast<std::size_t>(axis)];
    const auto [k, place] = sources[static_cast<std::size_t>(along)];
    along = place;
    y.values[static_cast<std::size_t>(i)] = inputs[k].values[static_cast<std::size_t>(flat_of(inputs[k].shape, index))];
  }
  return {y};
}

std::vector<Array> split(const AttributeList& attributes, Inputs inputs) {
  const Array& x = at(inputs, 0);
  const int axis = axis_of(integer(attributes, "axis", 0), x.shape.rank());
  std::vector<std::int64_t> sizes = argument(attributes, "split", inputs, 1);
  if (sizes.empty()) {
    const std::int64_t parts = integer(attributes, "num_outputs", 1);
    const std::int64_t chunk = (x.shape[axis] + parts - 1) / parts;
    for (std::int64_t left = x.shape[axis], i = 0; i < parts; ++i, left -= chunk)
      sizes.push_back(std::min(chunk, left));
  }
  std::vector<Array> outputs;
  std::int64_t start = 0;
  for (const std::int64_t size : sizes) {
    Dims dims = dims_of(x);
    dims[static_cast<std::size_t>(axis)] = size;
    outputs.push_back(pick(x, dims, [&](Index index) {
                        index[static_cast<std::size_t>(axis)] += start;
                        return index;
                      }).front());
    start += size;
  }
  return outputs;
}

// The positions of NumPy's a[start:end:step].
std::vector<std::int64_t> positions(std::int64_t dim, std::int64_t start, std::int64_t end, std::int64_t step) {
  const auto clamp = [dim](std::int64_t position, std::int64_t low, std::int64_t high) {
    if (position < 0) position += dim;
    return std::clamp(position, low, high);
  };
  std::vector<std::int64_t> list;
  if (dim == 0) return list;
  if (step > 0) {
    end = clamp(end, 0, dim);
    for (std::int64_t i = clamp(start, 0, dim); i < end; i += std::min(step, dim)) list.push_back(i);
  } else {
    end = clamp(end, -1, dim - 1);
    for (std::int64_t i = clamp(start, 0, dim - 1); i > end; i += std::max(step, -dim)) list.push_back(i);
  }
  return list;
}

std::vector<Array> slice(const AttributeList& attributes, Inputs inputs) {
  const Array& x = at(inputs, 0);
  const std::vector<std::int64_t> starts = argument(attributes, "starts", inputs, 1);
  const std::vector<std::int64_t> ends = argument(attributes, "ends", inputs, 2);
  std::vector<std::int64_t> axes = argument(attributes, "axes", inputs, 3);
  std::vector<std::int64_t> steps = argument(attributes, "steps", inputs, 4);
  if (axes.empty())
    for (std::size_t i = 0; i < starts.size(); ++i) axes.push_back(static_cast<std::int64_t>(i));
  if (steps.empty()) steps.assign(starts.size(), 1);
  std::vector<std::vector<std::int64_t>> taken;
  for (int i = 0; i < x.shape.rank(); ++i) taken.push_back(positions(x.shape[i], 0, x.shape[i], 1));
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const int axis = axis_of(axes[i], x.shape.rank());
    taken[static_cast<std::size_t>(axis)] = positions(x.shape[axis], starts[i], ends[i], steps[i]);
  }
  Dims dims;
  for (const auto& list : taken) dims.push_back(static_cast<std::int64_t>(list.size()));
  return pick(x, dims, [&](Index index) {
    for (std::size_t i = 0; i < index.size(); ++i) index[i] = taken[i][static_cast<std::size_t>(index[i])];
    return index;
  });
}

std::vector<Array> gather(const AttributeList& attributes, Inputs inputs) {
  const Array &x = at(inputs, 0), &indices = at(inputs, 1);
  const int axis = axis_of(integer(attributes, "axis", 0), x.shape.rank());
  Dims dims = dims_of(x);
  dims.erase(dims.begin() + axis);
  dims.insert(dims.begin() + axis, indices.shape.dims().begin(), indices.shape.dims().end());
  const std::vector<std::int64_t> wanted = as_integers(indices);
  return pick(x, dims, [&](const Index& index) {
    const auto first = index.begin() + axis, last = first + indices.shape.rank();
    const std::int64_t position = wanted[static_cast<std::size_t>(flat_of(indices.shape, Index(first, last)))];
    Index source(index.begin(), first);
    source.push_back(position < 0 ? position + x.shape[axis] : position);
    source.append(last, index.end());
    return source;
  });
}

std::vector<Array> expand(const AttributeList&, Inputs inputs) {
  const Array& x = at(inputs, 0);
  Dims wanted = as_integers(at(inputs, 1)), own = dims_of(x);
  const std::size_t rank = std::max(wanted.size(), own.size());
  wanted.insert(wanted.begin(), rank - wanted.size(), 1);
  own.insert(own.begin(), rank - own.size(), 1);
  Dims dims(rank);
  for (std::size_t i = 0; i < rank; ++i) dims[i] = own[i] == 1 ? wanted[i] : own[i];
  return pick(x, dims, [&](const Index& index) {
    Index source(index.end() - x.shape.rank(), index.end());
    for (int i = 0; i < x.shape.rank(); ++i)
      if (x.shape[i] == 1) source[static_cast<std::size_t>(i)] = 0;
    return source;
  });
}

std::vector<Array> tile(const AttributeList&, Inputs inputs) {
  const Array& x = at(inputs, 0);
  const Dims repeats = as_integers(at(inputs, 1));
  Dims dims = dims_of(x);
  for (std::size_t i = 0; i < dims.size(); ++i) dims[i] *= repeats[i];
  return pick(x, dims, [&](Index index) {
    for (std::size_t i = 0; i < index.size(); ++i) index[i] %= x.shape[static_cast<int>(i)];
    return index;
  });
}

std::vector<Array> depth_to_space(const AttributeList& attributes, Inputs inputs) {
  const Array& x = at(inputs, 0);
  const std::int64_t b = integer(attributes, "blocksize", 1), channels = x.shape[1] / (b * b);
  const bool column_row_depth = text(attributes, "mode", "DCR") == "CRD";
  return pick(x, {x.shape[0], channels, x.shape[2] * b, x.shape[3] * b}, [&](const Index& y) {
    const std::int64_t within = y[2] % b * b + y[3] % b;
    return Index{y[0], column_row_depth ? y[1] * b * b + within : within * channels + y[1], y[2] / b, y[3] / b};
  });
}

std::vector<Array> space_to_depth(const AttributeList& attributes, Inputs inputs) {
  const Array& x = at(inputs, 0);
  const std::int64_t b = integer(attributes, "blocksize", 1), channels = x.shape[1];
  const bool column_row_depth = text(attributes, "mode", "DCR") == "CRD";
  return pick(x, {x.shape[0], channels * b * b, x.shape[2] / b, x.shape[3] / b}, [&](const Index& y) {
    const std::int64_t within = column_row_depth ? y[1] % (b * b) : y[1] / channels;
    const std::int64_t c = column_row_depth ? y[1] / (b * b) : y[1] % channels;
    return Index{y[0], c, y[2] * b + within / b, y[3] * b + within % b};
  });
}

std::vector<Array> channel_shuffle(const AttributeList& attributes, Inputs inputs) {
  const Array x = concat({{"axis", std::int64_t{1}}}, inputs).at(0);
  const std::int64_t groups = integer(attributes, "groups", 1), of_group = x.shape[1] / groups;
  const std::int64_t parts = integer(attributes, "num_outputs", 1), of_part = x.shape[1] / parts;
  std::vector<Array> results;
  for (std::int64_t part = 0; part < parts; ++part)
    results.push_back(pick(x, {x.shape[0], of_part, x.shape[2], x.shape[3]}, [&](const Index& y) {
                        const std::int64_t channel = part * of_part + y[1];
                        return Index{y[0], channel % groups * of_group + channel / groups, y[2], y[3]};
                      }).at(0));
  return results;
}

// Relabel is a Transpose between channels-first and channels-last that moves no bytes. Kind "pixels" flattens each
// channels-last image to one row, "layout" keeps the shape.
std::vector<Array> relabel(const AttributeList& attributes, Inputs inputs) {
  const Array& x = at(inputs, 0);
  const Shape& s = x.shape;
  const std::string kind = text(attributes, "kind", "layout");
  if (kind == "channels_first")
    return pick(x, {s[0], s[3], s[1], s[2]}, [](const Index& y) { return Index{y[0], y[2], y[3], y[1]}; });
  if (kind == "channels_last")
    return pick(x, {s[0], s[2], s[3], s[1]}, [](const Index& y) { return Index{y[0], y[3], y[1], y[2]}; });
  if (kind == "pixels")
    return pick(x, {s[0], s[1] * s[2] * s[3]}, [&](const Index& y) {
      return Index{y[0], y[1] % s[1], y[1] / s[1] / s[3], y[1] / s[1] % s[3]};
    });
  return {x};
}

constexpr Entry entries[] = {
    {"Identity", identity},
    {"Relabel", relabel},
    {"Dropout", dropout},
    {"Reshape", reshape},
    {"Flatten", flatten},
    {"Squeeze", squeeze},
    {"Unsqueeze", unsqueeze},
    {"Transpose", transpose},
    {"Concat", concat},
    {"Split", split},
    {"Slice", slice},
    {"Gather", gather},
    {"Expand", expand},
    {"Tile", tile},
    {"DepthToSpace", depth_to_space},
    {"SpaceToDepth", space_to_depth},
    {"ChannelShuffle", channel_shuffle},
};

}  // namespace

std::span<const Entry> shape_entries() { return entries; }

}  // namespace lenslet::oracle
