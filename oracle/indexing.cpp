// References of operators whose indices, conditions or diagonals select the elements to read or write.

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "lenslet/error.h"
#include "oracle/families.h"

namespace lenslet::oracle {

namespace {

using Dims = std::vector<std::int64_t>;

Dims dims_of(const Array& x) { return {x.shape.dims().begin(), x.shape.dims().end()}; }

double& element(Array& x, const Index& index) { return x.values[static_cast<std::size_t>(flat_of(x.shape, index))]; }
double element(const Array& x, const Index& index) {
  return x.values[static_cast<std::size_t>(flat_of(x.shape, index))];
}

// A negative index counts from the end.
std::int64_t from_front(double index, std::int64_t dim) {
  const double position = index < 0 ? index + static_cast<double>(dim) : index;
  if (!(position >= 0 && position < static_cast<double>(dim)))
    throw Error(ErrorKind::invalid_argument, "oracle: an index lies outside");
  return static_cast<std::int64_t>(position);
}

std::vector<Array> gather_elements(const AttributeList& attributes, Inputs inputs) {
  const Array &x = at(inputs, 0), &indices = at(inputs, 1);
  const auto axis = static_cast<std::size_t>(axis_of(integer(attributes, "axis", 0), x.shape.rank()));
  Array y = zeros(indices.shape, x.dtype);
  for (std::size_t i = 0; i < y.values.size(); ++i) {
    Index index = index_of(y.shape, static_cast<std::int64_t>(i));
    index[axis] = from_front(indices.values[i], x.shape[static_cast<int>(axis)]);
    y.values[i] = element(x, index);
  }
  return {y};
}

// The index in data that a tuple of indices selects: `batch` axes of its own position, then the tuple, then `rest`.
Index named(const Array& data, const Array& indices, const Index& place, std::size_t batch, const Index& rest) {
  Index index(place.begin(), place.begin() + batch);
  Index at = place;
  at.push_back(0);
  for (; at.back() < indices.shape[indices.shape.rank() - 1]; ++at.back())
    index.push_back(from_front(element(indices, at), data.shape[static_cast<int>(index.size())]));
  index.append(rest.begin(), rest.end());
  return index;
}

std::vector<Array> gather_nd(const AttributeList& attributes, Inputs inputs) {
  const Array &x = at(inputs, 0), &indices = at(inputs, 1);
  const auto batch = static_cast<std::size_t>(integer(attributes, "batch_dims", 0));
  Dims dims = dims_of(indices);
  const auto taken = static_cast<std::ptrdiff_t>(batch) + dims.back();
  dims.pop_back();
  const auto tuple_rank = static_cast<std::ptrdiff_t>(dims.size());
  const Dims data_dims = dims_of(x);
  dims.insert(dims.end(), data_dims.begin() + taken, data_dims.end());
  Array y = zeros(Shape(dims), x.dtype);
  for (std::size_t i = 0; i < y.values.size(); ++i) {
    const Index index = index_of(y.shape, static_cast<std::int64_t>(i));
    const Index place(index.begin(), index.begin() + tuple_rank), rest(index.begin() + tuple_rank, index.end());
    y.values[i] = element(x, named(x, indices, place, batch, rest));
  }
  return {y};
}

double joined(const std::string& reduction, double y, double update) {
  if (reduction == "add") return y + update;
  if (reduction == "mul") return y * update;
  if (reduction == "none") return update;
  if (std::isnan(y) || std::isnan(update)) return std::numeric_limits<double>::quiet_NaN();
  return reduction == "max" ? std::max(y, update) : std::min(y, update);
}

// joined() at one element of a result with a scale, which becomes that of a sum with the first addition.
void join(Array& y, const Index& index, const std::string& reduction, double update) {
  const auto to = static_cast<std::size_t>(flat_of(y.shape, index));
  const double before = y.values[to], scale = y.scale[to] == 0 ? before : y.scale[to];
  y.values[to] = joined(reduction, before, update);
  if (reduction == "add") y.scale[to] = std::hypot(scale, update);
}

Array to_scatter(const Array& x) {
  Array y = sums(x.shape, x.dtype);
  y.values = x.values;
  return y;
}

// Updates are applied in the order of the indices.
std::vector<Array> scatter_elements(const AttributeList& attributes, Inputs inputs) {
  Array y = to_scatter(at(inputs, 0));
  const Array &indices = at(inputs, 1), &updates = at(inputs, 2);
  const auto axis = static_cast<std::size_t>(axis_of(integer(attributes, "axis", 0), y.shape.rank()));
  const std::string reduction = text(attributes, "reduction", "none");
  for (std::size_t i = 0; i < updates.values.size(); ++i) {
    Index index = index_of(updates.shape, static_cast<std::int64_t>(i));
    index[axis] = from_front(indices.values[i], y.shape[static_cast<int>(axis)]);
    join(y, index, reduction, updates.values[i]);
  }
  return {y};
}

std::vector<Array> scatter_nd(const AttributeList& attributes, Inputs inputs) {
  Array y = to_scatter(at(inputs, 0));
  const Array &indices = at(inputs, 1), &updates = at(inputs, 2);
  const std::string reduction = text(attributes, "reduction", "none");
  const auto tuple_rank = static_cast<std::ptrdiff_t>(indices.shape.rank()) - 1;
  for (std::size_t i = 0; i < updates.values.size(); ++i) {
    const Index index = index_of(updates.shape, static_cast<std::int64_t>(i));
    const Index place(index.begin(), index.begin() + tuple_rank), rest(index.begin() + tuple_rank, index.end());
    join(y, named(y, indices, place, 0, rest), reduction, updates.values[i]);
  }
  return {y};
}

std::vector<Array> one_hot(const AttributeList& attributes, Inputs inputs) {
  const Array &indices = at(inputs, 0), &values = at(inputs, 2);
  const auto depth = static_cast<std::int64_t>(at(inputs, 1).values.at(0));
  const int axis = axis_of(integer(attributes, "axis", -1), indices.shape.rank() + 1);
  Dims dims = dims_of(indices);
  dims.insert(dims.begin() + axis, depth);
  Array y = zeros(Shape(dims), values.dtype);
  for (std::size_t i = 0; i < y.values.size(); ++i) {
    Index index = index_of(y.shape, static_cast<std::int64_t>(i));
    const std::int64_t position = index[static_cast<std::size_t>(axis)];
    index.erase(static_cast<std::size_t>(axis));
    const double wanted = std::trunc(element(indices, index));
    const bool hot = wanted == static_cast<double>(position) || wanted == static_cast<double>(position - depth);
    y.values[i] = values.values.at(hot ? 1 : 0);
  }
  return {y};
}

std::vector<Array> compress(const AttributeList& attributes, Inputs inputs) {
  Array x = at(inputs, 0);
  const Array& condition = at(inputs, 1);
  if (!has(attributes, "axis")) x.shape = Shape{x.shape.elems()};
  const auto axis = static_cast<std::size_t>(axis_of(integer(attributes, "axis", 0), x.shape.rank()));
  Dims kept;
  for (std::size_t i = 0; i < condition.values.size(); ++i)
    if (condition.values[i] != 0) kept.push_back(static_cast<std::int64_t>(i));
  Array y = zeros(x.shape.with(static_cast<int>(axis), static_cast<std::int64_t>(kept.size())), x.dtype);
  for (std::size_t i = 0; i < y.values.size(); ++i) {
    Index index = index_of(y.shape, static_cast<std::int64_t>(i));
    index[axis] = kept[static_cast<std::size_t>(index[axis])];
    y.values[i] = element(x, index);
  }
  return {y};
}

std::vector<Array> trilu(const AttributeList& attributes, Inputs inputs) {
  Array y = at(inputs, 0);
  const double k = has(inputs, 1) ? inputs[1].values.at(0) : 0;
  const bool upper = integer(attributes, "upper", 1) != 0;
  for (std::size_t i = 0; i < y.values.size(); ++i) {
    const Index index = index_of(y.shape, static_cast<std::int64_t>(i));
    const auto diagonal = static_cast<double>(index.back() - index[index.size() - 2]);
    if (upper ? diagonal < k : diagonal > k) y.values[i] = 0;
  }
  return {y};
}

std::vector<Array> reverse_sequence(const AttributeList& attributes, Inputs inputs) {
  const Array& x = at(inputs, 0);
  const Dims lengths = as_integers(at(inputs, 1));
  const auto batch = static_cast<std::size_t>(integer(attributes, "batch_axis", 1));
  const auto time = static_cast<std::size_t>(integer(attributes, "time_axis", 0));
  Array y = zeros(x.shape, x.dtype);
  for (std::size_t i = 0; i < y.values.size(); ++i) {
    Index index = index_of(y.shape, static_cast<std::int64_t>(i));
    const std::int64_t length = lengths.at(static_cast<std::size_t>(index[batch]));
    if (index[time] < length) index[time] = length - 1 - index[time];
    y.values[i] = element(x, index);
  }
  return {y};
}

std::vector<Array> center_crop_pad(const AttributeList& attributes, Inputs inputs) {
  const Array& x = at(inputs, 0);
  const Dims sizes = as_integers(at(inputs, 1));
  Dims axes = integers(attributes, "axes");
  if (!has(attributes, "axes"))
    for (int i = 0; i < x.shape.rank(); ++i) axes.push_back(i);
  Array y = x;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const int axis = axis_of(axes[i], x.shape.rank());
    const Array before = y;
    const std::int64_t dim = before.shape[axis], size = sizes.at(i);
    y = zeros(before.shape.with(axis, size), x.dtype);
    for (std::size_t j = 0; j < y.values.size(); ++j) {
      Index index = index_of(y.shape, static_cast<std::int64_t>(j));
      std::int64_t& along = index[static_cast<std::size_t>(axis)];
      along += size > dim ? -((size - dim) / 2) : (dim - size) / 2;
      if (along >= 0 && along < dim) y.values[j] = element(before, index);
    }
  }
  return {y};
}

std::vector<Array> non_zero(const AttributeList&, Inputs inputs) {
  const Array& x = at(inputs, 0);
  std::vector<Index> found;
  for (std::size_t i = 0; i < x.values.size(); ++i)
    if (x.values[i] != 0) found.push_back(index_of(x.shape, static_cast<std::int64_t>(i)));
  Array y = zeros({x.shape.rank(), static_cast<std::int64_t>(found.size())}, DType::i64);
  for (std::size_t i = 0; i < found.size(); ++i)
    for (std::size_t axis = 0; axis < found[i].size(); ++axis)
      element(y, {static_cast<std::int64_t>(axis), static_cast<std::int64_t>(i)}) = static_cast<double>(found[i][axis]);
  return {y};
}

// Slices along the axis (elements, if flattened), sorted so that equal ones are adjacent.
std::vector<Array> unique(const AttributeList& attributes, Inputs inputs) {
  Array x = at(inputs, 0);
  if (!has(attributes, "axis")) x.shape = Shape{static_cast<std::int64_t>(x.values.size())};
  const int axis = axis_of(integer(attributes, "axis", 0), x.shape.rank());
  std::vector<std::vector<double>> slices(static_cast<std::size_t>(x.shape[axis]));
  for (std::size_t i = 0; i < x.values.size(); ++i)
    slices[static_cast<std::size_t>(index_of(x.shape, static_cast<std::int64_t>(i))[static_cast<std::size_t>(axis)])]
        .push_back(x.values[i]);
  const auto number_less = [](double a, double b) { return std::isnan(b) ? !std::isnan(a) : a < b; };
  const auto less = [&](const auto& a, const auto& b) {
    return std::ranges::lexicographical_compare(a, b, number_less);
  };
  std::vector<std::size_t> order(slices.size()), kept, group(slices.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](auto a, auto b) { return less(slices[a], slices[b]); });
  for (const std::size_t i : order) {  // equal slices are adjacent, the first occurrence first
    if (kept.empty() || less(slices[kept.back()], slices[i])) kept.push_back(i);
    group[i] = kept.size() - 1;
  }
  if (integer(attributes, "sorted", 1) == 0) {
    std::vector<std::size_t> firsts = kept, number(slices.size());
    std::ranges::sort(firsts);
    for (std::size_t k = 0; k < firsts.size(); ++k) number[firsts[k]] = k;
    for (std::size_t& g : group) g = number[kept[g]];
    kept = firsts;
  }
  const auto count = static_cast<std::int64_t>(kept.size());
  Array y = zeros(x.shape.with(axis, count), x.dtype), firsts = zeros({count}, DType::i64),
        inverse = zeros({x.shape[axis]}, DType::i64), counts = zeros({count}, DType::i64);
  for (std::size_t i = 0; i < y.values.size(); ++i) {
    Index index = index_of(y.shape, static_cast<std::int64_t>(i));
    auto& place = index[static_cast<std::size_t>(axis)];
    place = static_cast<std::int64_t>(kept[static_cast<std::size_t>(place)]);
    y.values[i] = element(x, index);
  }
  std::ranges::copy(kept, firsts.values.begin());
  for (std::size_t i = 0; i < slices.size(); ++i) {
    inverse.values[i] = static_cast<double>(group[i]);
    ++counts.values[group[i]];
  }
  return {y, firsts, inverse, counts};
}

constexpr Entry entries[] = {
    {"GatherElements", gather_elements},
    {"GatherND", gather_nd},
    {"Scatter", scatter_elements},
    {"ScatterElements", scatter_elements},
    {"ScatterND", scatter_nd},
    {"OneHot", one_hot},
    {"Compress", compress},
    {"Trilu", trilu},
    {"ReverseSequence", reverse_sequence},
    {"CenterCropPad", center_crop_pad},
    {"NonZero", non_zero},
    {"Unique", unique},
};

}  // namespace

std::span<const Entry> indexing_entries() { return entries; }

}  // namespace lenslet::oracle
