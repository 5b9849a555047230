#include "ops/pool/pool.h"

#include <fmt/format.h>

#include "lenslet/error.h"
#include "ops/pool/pool_attributes.h"

namespace lenslet {

namespace {

// Far above any real size, stride or pad; products of two stay far below 2^63.
constexpr std::int64_t most = std::int64_t{1} << 30;

std::int64_t entry(const std::vector<std::int64_t>& list, std::size_t index, std::int64_t fallback, std::int64_t least,
                   const char* name) {
  const std::int64_t value = list.empty() ? fallback : list[index];
  if (value < least || value > most)
    throw Error(ErrorKind::invalid_model, fmt::format("attribute '{}' holds {}", name, value));
  return value;
}

void check_length(const std::vector<std::int64_t>& list, std::size_t length, const char* name) {
  if (!list.empty() && list.size() != length)
    throw Error(ErrorKind::invalid_model,
                fmt::format("attribute '{}' has {} entries, expected {}", name, list.size(), length));
}

}  // namespace

PoolGeometry read_pool_geometry(AttributeReader& reader) {
  PoolGeometry geometry;
  geometry.kernel = reader.integers("kernel_shape");
  if (geometry.kernel.empty()) throw Error(ErrorKind::invalid_model, "attribute 'kernel_shape' is missing");
  geometry.strides = reader.integers("strides");
  geometry.dilations = reader.integers("dilations");
  geometry.pads = reader.integers("pads");
  geometry.auto_pad = parse_auto_pad(reader.text("auto_pad", "NOTSET"));
  geometry.ceil_mode = reader.flag("ceil_mode", false);
  return geometry;
}

void append_geometry(AttributeList& list, const PoolGeometry& geometry) {
  const std::size_t dims = geometry.kernel.size();
  const auto filled = [](const std::vector<std::int64_t>& values, std::size_t length, std::int64_t value) {
    return values.empty() ? std::vector<std::int64_t>(length, value) : values;
  };
  list.emplace_back("kernel_shape", geometry.kernel);
  list.emplace_back("strides", filled(geometry.strides, dims, 1));
  list.emplace_back("dilations", filled(geometry.dilations, dims, 1));
  list.emplace_back("pads", filled(geometry.pads, 2 * dims, 0));
  list.emplace_back("auto_pad", std::string(to_string(geometry.auto_pad)));
  list.emplace_back("ceil_mode", std::int64_t{geometry.ceil_mode ? 1 : 0});
}

PoolProblem resolve_pool(const Shape& x, const PoolGeometry& geometry) {
  if (x.rank() < 3 || x.rank() > 5)
    throw Error(ErrorKind::unsupported, fmt::format("input X has shape {} (supported: rank 3 to 5)", x.str()));
  const auto dims = static_cast<std::size_t>(x.rank() - 2);
  if (geometry.kernel.size() != dims)
    throw Error(ErrorKind::invalid_model,
                fmt::format("attribute 'kernel_shape' has {} entries for an input of shape {}", geometry.kernel.size(),
                            x.str()));
  check_length(geometry.strides, dims, "strides");
  check_length(geometry.dilations, dims, "dilations");
  check_length(geometry.pads, 2 * dims, "pads");
  PoolProblem p;
  p.n = x[0];
  p.c = x[1];
  p.norm = geometry.norm;
  p.column_major = geometry.column_major;
  for (std::size_t i = 0; i < dims; ++i) {
    PoolAxis& axis = p.axes[3 - dims + i];
    axis.in = x[static_cast<int>(2 + i)];
    axis.kernel = entry(geometry.kernel, i, 1, 1, "kernel_shape");
    axis.stride = entry(geometry.strides, i, 1, 1, "strides");
    axis.dilation = entry(geometry.dilations, i, 1, 1, "dilations");
    const std::int64_t extent = (axis.kernel - 1) * axis.dilation + 1;
    if (is_same(geometry.auto_pad)) {
      const SameWindows same = same_windows(axis.in, extent, axis.stride, geometry.auto_pad);
      axis.out = same.count;
      axis.pad_begin = same.pad_before;
      axis.pad_end = same.pad_after;
      continue;
    }
    if (geometry.auto_pad == AutoPad::notset) {
      axis.pad_begin = entry(geometry.pads, i, 0, 0, "pads");
      axis.pad_end = entry(geometry.pads, dims + i, 0, 0, "pads");
    }
    if (axis.pad_begin >= extent || axis.pad_end >= extent)
      throw Error(ErrorKind::invalid_model, fmt::format("pads {} and {} are not smaller than the window of {}",
                                                        axis.pad_begin, axis.pad_end, extent));
    const std::int64_t room = axis.in + axis.pad_begin + axis.pad_end - extent;
    // With ceil_mode a window may exceed the whole padded axis, by less than a stride.
    if (room < 0 && (!geometry.ceil_mode || room <= -axis.stride))
      throw Error(ErrorKind::invalid_model,
                  fmt::format("a window of {} does not fit into {} with its pads", extent, axis.in));
    axis.out = (geometry.ceil_mode ? room + axis.stride - 1 : room) / axis.stride + 1;
    if (geometry.ceil_mode && (axis.out - 1) * axis.stride >= axis.in + axis.pad_begin) --axis.out;
  }
  return p;
}

Shape pool_output(const Shape& x, const PoolProblem& problem) {
  Shape y = x;
  const int dims = x.rank() - 2;
  for (int i = 0; i < dims; ++i) y = y.with(2 + i, problem.axes[3 - dims + i].out);
  return y;
}

}  // namespace lenslet
