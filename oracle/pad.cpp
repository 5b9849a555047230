// Reference of Pad: one axis after the other, element by element.

#include <algorithm>
#include <numeric>
#include <vector>

#include "lenslet/error.h"
#include "oracle/families.h"

namespace lenslet::oracle {

namespace {

// The axis as a list of positions in the input; -1 stands for the constant.
std::vector<std::int64_t> positions(std::int64_t dim, std::int64_t before, std::int64_t after,
                                    const std::string& mode) {
  std::vector<std::int64_t> kept(static_cast<std::size_t>(dim));
  std::iota(kept.begin(), kept.end(), std::int64_t{0});
  if (before < 0) kept.erase(kept.begin(), kept.begin() - before);
  if (after < 0) kept.erase(kept.end() + after, kept.end());
  const std::vector<std::int64_t> middle = kept;
  std::vector<std::int64_t> in_front;  // from the middle outwards
  // Extends by one element: reflect bounces between the ends, wrap starts over.
  const auto grow = [&](bool front) {
    const auto n = static_cast<std::int64_t>(middle.size());
    std::int64_t at = front ? 0 : n - 1, direction = front ? 1 : -1;
    for (std::int64_t i = 0; i < (front ? before : after); ++i) {
      std::int64_t value = -1;
      if (mode == "edge") value = middle.at(static_cast<std::size_t>(at));
      if (mode == "wrap") {
        at = ((front ? at - 1 : at + 1) + n) % n;
        value = middle.at(static_cast<std::size_t>(at));
      }
      if (mode == "reflect") {
        if (n > 1) {
          if (at + direction < 0 || at + direction >= n) direction = -direction;
          at += direction;
        }
        value = middle.at(static_cast<std::size_t>(at));
      }
      (front ? in_front : kept).push_back(value);
    }
  };
  grow(true);
  grow(false);
  kept.insert(kept.begin(), in_front.rbegin(), in_front.rend());
  return kept;
}

std::vector<Array> pad(const AttributeList& attributes, Inputs inputs) {
  const Array& x = at(inputs, 0);
  const int rank = x.shape.rank();
  const std::string mode = text(attributes, "mode", "constant");
  const std::vector<std::int64_t> pads = has(inputs, 1) ? as_integers(inputs[1]) : integers(attributes, "pads");
  const double value = has(inputs, 2) ? inputs[2].values.at(0) : real(attributes, "value", 0);
  std::vector<std::int64_t> axes(static_cast<std::size_t>(rank));
  std::iota(axes.begin(), axes.end(), std::int64_t{0});
  if (has(inputs, 3)) axes = as_integers(inputs[3]);

  std::vector<std::vector<std::int64_t>> maps;
  for (int axis = 0; axis < rank; ++axis) maps.push_back(positions(x.shape[axis], 0, 0, mode));
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const int axis = axis_of(axes[i], rank);
    maps[static_cast<std::size_t>(axis)] = positions(x.shape[axis], pads.at(i), pads.at(i + axes.size()), mode);
  }
  std::vector<std::int64_t> dims;
  for (const auto& map : maps) dims.push_back(static_cast<std::int64_t>(map.size()));
  Array y = zeros(Shape(dims), x.dtype);
  for (std::int64_t i = 0; i < y.shape.elems(); ++i) {
    Index index = index_of(y.shape, i);
    bool inside = true;
    for (std::size_t axis = 0; axis < index.size(); ++axis) {
      index[axis] = maps[axis][static_cast<std::size_t>(index[axis])];
      inside = inside && index[axis] >= 0;
    }
    y.values[static_cast<std::size_t>(i)] =
        inside ? x.values[static_cast<std::size_t>(flat_of(x.shape, index))] : value;
  }
  return {y};
}

constexpr Entry entries[] = {
    {"Pad", pad},
};

}  // namespace

std::span<const Entry> pad_entries() { return entries; }

}  // namespace lenslet::oracle
