#include "ops/conv/problem.h"

#include <fmt/format.h>

#include <algorithm>

#include "lenslet/error.h"

namespace lenslet {
namespace {

[[noreturn]] void contradiction(const std::string& what) {
  throw Error(ErrorKind::invalid_model, "convolution: " + what);
}

// Sizes and attributes come from files: any int64 value is possible.
std::int64_t add(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum))
    throw Error(ErrorKind::limit, fmt::format("convolution: size {} + {} overflows", a, b));
  return sum;
}
std::int64_t mul(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product))
    throw Error(ErrorKind::limit, fmt::format("convolution: size {} * {} overflows", a, b));
  return product;
}

struct Axis {
  const char* name;
  std::int64_t size, kernel, stride, dilation, pad_before, pad_after;
};
struct ResolvedAxis {
  std::int64_t out, stride, dilation, pad_before, pad_after;
};

ResolvedAxis resolve(const Axis& axis, AutoPad auto_pad) {
  if (axis.stride < 1) contradiction(fmt::format("stride {} of {} is not positive", axis.stride, axis.name));
  if (axis.dilation < 1) contradiction(fmt::format("dilation {} of {} is not positive", axis.dilation, axis.name));
  if (axis.kernel < 1) contradiction(fmt::format("filter {} is empty", axis.name));
  if (axis.size < 1) contradiction(fmt::format("input {} is empty", axis.name));
  if (axis.pad_before < 0 || axis.pad_after < 0)
    throw Error(ErrorKind::unsupported,
                fmt::format("convolution: negative pads {},{} of {}", axis.pad_before, axis.pad_after, axis.name));
  const std::int64_t span = add(mul(axis.dilation, axis.kernel - 1), 1);

  ResolvedAxis resolved{0, axis.stride, axis.dilation, axis.pad_before, axis.pad_after};
  if (auto_pad != AutoPad::notset) {
    const SameWindows same = is_same(auto_pad) ? same_windows(axis.size, span, axis.stride, auto_pad) : SameWindows();
    resolved.pad_before = same.pad_before;
    resolved.pad_after = same.pad_after;
    // Some exporters write both; harmless if they agree or the explicit pads are the default.
    const bool given = axis.pad_before != 0 || axis.pad_after != 0;
    if (given && (axis.pad_before != resolved.pad_before || axis.pad_after != resolved.pad_after))
      contradiction(fmt::format("pads {},{} of {} contradict auto_pad, which needs {},{}", axis.pad_before,
                                axis.pad_after, axis.name, resolved.pad_before, resolved.pad_after));
  }
  const std::int64_t padded = add(add(axis.size, resolved.pad_before), resolved.pad_after);
  if (padded < span)
    contradiction(fmt::format("filter spans {} in {}, the padded input only {}", span, axis.name, padded));
  resolved.out = (padded - span) / axis.stride + 1;
  // Clamps a stride past the image, which has only one output, and the dilation of a single tap, which has no effect,
  // so that no algorithm's offsets overflow.
  resolved.stride = std::min(axis.stride, padded);
  if (axis.kernel == 1) resolved.dilation = 1;
  return resolved;
}

std::string pair(std::int64_t h, std::int64_t w) { return h == w ? fmt::format("{}", h) : fmt::format("{}x{}", h, w); }

}  // namespace

double ConvProblem::flops() const {
  return 2.0 * static_cast<double>(n) * static_cast<double>(k) * static_cast<double>(p) * static_cast<double>(q) *
         static_cast<double>(group_c()) * static_cast<double>(r) * static_cast<double>(s);
}

double ConvProblem::bytes() const {
  const double in = static_cast<double>(n) * static_cast<double>(c) * static_cast<double>(h) * static_cast<double>(w);
  const double out = static_cast<double>(n) * static_cast<double>(k) * static_cast<double>(stored_p()) *
                     static_cast<double>(stored_q());
  const double filters =
      static_cast<double>(k) * static_cast<double>(group_c()) * static_cast<double>(r) * static_cast<double>(s);
  return static_cast<double>(dtype_bytes(x_storage)) * in +
         static_cast<double>(dtype_bytes(storage)) * (filters + out * (residual ? 2 : 1)) +
         (bias ? 4.0 * static_cast<double>(k) : 0);
}

std::string ConvProblem::str() const {
  std::string pads = fmt::format("{},{},{},{}", pad_top, pad_left, pad_bottom, pad_right);
  if (pad_top == pad_bottom && pad_left == pad_right) pads = pair(pad_top, pad_left);
  std::string text =
      fmt::format("{}x{}x{}x{} -> {}, {}x{} s{} p{} g{}", n, c, h, w, k, r, s, pair(stride_h, stride_w), pads, groups);
  if (x_storage != storage) text += fmt::format(" {} to", to_string(x_storage));
  if (storage != DType::f32) text += fmt::format(" {}", to_string(storage));
  if (dilation_h != 1 || dilation_w != 1) text += fmt::format(" d{}", pair(dilation_h, dilation_w));
  if (bias) text += " +bias";
  if (residual) text += " +residual";
  if (activation.kind != Activation::Kind::none) text += " +" + to_string(activation);
  if (max_pool) text += fmt::format(" +max {0}x{0} s{1}", max_pool.size, max_pool.stride);
  return text;
}

ConvProblem ConvProblem::with_explicit_padding() const {
  ConvProblem padded = *this;
  padded.h = h + pad_top + pad_bottom;
  padded.w = w + pad_left + pad_right;
  padded.pad_top = padded.pad_left = padded.pad_bottom = padded.pad_right = 0;
  return padded;
}

ConvProblem resolve_conv(const Shape& x, const Shape& filter, const ConvGeometry& geometry) {
  if (x.rank() > 4)
    throw Error(ErrorKind::unsupported,
                fmt::format("convolution: {}-D convolution (input {}) is not supported", x.rank() - 2, x.str()));
  if (x.rank() < 3) contradiction(fmt::format("input {} has no spatial dimension", x.str()));
  if (filter.rank() != x.rank())
    contradiction(fmt::format("input {} and filter {} differ in rank", x.str(), filter.str()));

  const bool flat = x.rank() == 3;  // 1-D: an image of height 1
  ConvProblem problem;
  problem.n = x[0];
  problem.c = x[1];
  problem.h = flat ? 1 : x[2];
  problem.w = flat ? x[2] : x[3];
  problem.k = filter[0];
  problem.r = flat ? 1 : filter[2];
  problem.s = flat ? filter[2] : filter[3];
  problem.groups = geometry.groups;
  if (problem.c < 1) contradiction(fmt::format("input {} has no channels", x.str()));
  if (problem.k < 1) contradiction(fmt::format("filter {} has no output channels", filter.str()));
  if (problem.groups < 1) contradiction(fmt::format("group {} is not positive", problem.groups));
  if (problem.c % problem.groups != 0)
    contradiction(fmt::format("{} input channels do not divide into {} groups", problem.c, problem.groups));
  if (problem.k % problem.groups != 0)
    contradiction(fmt::format("{} output channels do not divide into {} groups", problem.k, problem.groups));
  if (filter[1] != problem.group_c())
    contradiction(fmt::format("filter {} expects {} channels a group, input {} with group {} has {}", filter.str(),
                              filter[1], x.str(), problem.groups, problem.group_c()));

  if (flat && (geometry.pads[0] != 0 || geometry.pads[2] != 0))
    contradiction(fmt::format("2-D pads on the 1-D input {}", x.str()));
  const ResolvedAxis rows = resolve({"height", problem.h, problem.r, flat ? 1 : geometry.stride[0],
                                     flat ? 1 : geometry.dilation[0], geometry.pads[0], geometry.pads[2]},
                                    geometry.auto_pad);
  const ResolvedAxis columns = resolve({flat ? "length" : "width", problem.w, problem.s, geometry.stride[1],
                                        geometry.dilation[1], geometry.pads[1], geometry.pads[3]},
                                       geometry.auto_pad);
  problem.stride_h = rows.stride;
  problem.stride_w = columns.stride;
  problem.dilation_h = rows.dilation;
  problem.dilation_w = columns.dilation;
  problem.p = rows.out;
  problem.pad_top = rows.pad_before;
  problem.pad_bottom = rows.pad_after;
  problem.q = columns.out;
  problem.pad_left = columns.pad_before;
  problem.pad_right = columns.pad_after;
  // Output and padded input are allocated: their sizes must not overflow.
  (void)Shape({problem.n, problem.k, problem.p, problem.q}).elems();
  const ConvProblem padded = problem.with_explicit_padding();
  (void)Shape({padded.n, padded.c, padded.h, padded.w}).elems();
  return problem;
}

}  // namespace lenslet
