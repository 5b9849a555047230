#include "ops/pool/pool.h"

#include <fmt/format.h>

#include <algorithm>

#include "lenslet/error.h"

namespace lenslet {

namespace {

// No size, stride or pad of a real pooling comes near; products of two stay far from 2^63.
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

PoolTaps pool_taps(const PoolProblem& problem, int dim, std::int64_t out) {
  const auto d = static_cast<std::size_t>(dim);
  const std::int64_t dilation = problem.dilation[d];
  const std::int64_t begin = out * problem.stride[d] - problem.pad_begin[d];
  const std::int64_t skipped = begin < 0 ? (-begin + dilation - 1) / dilation : 0;
  const auto reach = [&](std::int64_t end) {
    return end <= begin ? 0 : std::min(problem.kernel[d], (end - begin + dilation - 1) / dilation);
  };
  PoolTaps taps;
  taps.first = begin + skipped * dilation;
  taps.count = std::max<std::int64_t>(0, reach(problem.in[d]) - skipped);
  taps.padded = reach(problem.in[d] + problem.pad_end[d]);
  return taps;
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
  for (std::size_t i = 0; i < dims; ++i) {
    const std::size_t d = 3 - dims + i;
    p.in[d] = x[static_cast<int>(2 + i)];
    p.kernel[d] = entry(geometry.kernel, i, 1, 1, "kernel_shape");
    p.stride[d] = entry(geometry.strides, i, 1, 1, "strides");
    p.dilation[d] = entry(geometry.dilations, i, 1, 1, "dilations");
    const std::int64_t extent = (p.kernel[d] - 1) * p.dilation[d] + 1;
    if (geometry.auto_pad == AutoPad::same_upper || geometry.auto_pad == AutoPad::same_lower) {
      p.out[d] = (p.in[d] + p.stride[d] - 1) / p.stride[d];
      const std::int64_t total = std::max<std::int64_t>(0, (p.out[d] - 1) * p.stride[d] + extent - p.in[d]);
      p.pad_begin[d] = geometry.auto_pad == AutoPad::same_upper ? total / 2 : total - total / 2;
      p.pad_end[d] = total - p.pad_begin[d];
      continue;
    }
    if (geometry.auto_pad == AutoPad::notset) {
      p.pad_begin[d] = entry(geometry.pads, i, 0, 0, "pads");
      p.pad_end[d] = entry(geometry.pads, dims + i, 0, 0, "pads");
    }
    if (p.pad_begin[d] >= extent || p.pad_end[d] >= extent)
      throw Error(ErrorKind::invalid_model, fmt::format("pads {} and {} are not smaller than the window of {}",
                                                        p.pad_begin[d], p.pad_end[d], extent));
    const std::int64_t room = p.in[d] + p.pad_begin[d] + p.pad_end[d] - extent;
    if (room < 0)
      throw Error(ErrorKind::invalid_model,
                  fmt::format("a window of {} does not fit into {} with its pads", extent, p.in[d]));
    p.out[d] = (geometry.ceil_mode ? room + p.stride[d] - 1 : room) / p.stride[d] + 1;
    if (geometry.ceil_mode && (p.out[d] - 1) * p.stride[d] >= p.in[d] + p.pad_begin[d]) --p.out[d];
  }
  return p;
}

Shape pool_output(const Shape& x, const PoolProblem& problem) {
  Shape y = x;
  const int dims = x.rank() - 2;
  for (int i = 0; i < dims; ++i) y = y.with(2 + i, problem.out[static_cast<std::size_t>(3 - dims + i)]);
  return y;
}

}  // namespace lenslet
