#include "ops/conv/conv_transpose.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/core/checks.h"
#include "ops/core/shape_args.h"

namespace lenslet {
namespace {

[[noreturn]] void contradiction(const std::string& what) {
  throw Error(ErrorKind::invalid_model, "transposed convolution: " + what);
}

}  // namespace

ConvTransposeOp::ConvTransposeOp(const NodeSpec& spec) {
  AttributeReader reader(spec);
  read_geometry(reader, geometry_, kernel_shape_, spatial_rank_);
  output_padding_ = per_axis(reader.integers("output_padding"), "output_padding", 0, spatial_rank_, depth_padding_);
  if (const auto list = reader.integers("output_shape"); !list.empty())
    output_shape_ = per_axis(list, "output_shape", 1, spatial_rank_, depth_size_);
  geometry_.volume = spatial_rank_ == 3;
  if (spec.normalised) {
    if (!geometry_.volume) spatial_rank_ = 0;  // two entries a list, whatever the rank
    read_epilogue(reader, epilogue_);
  }
  reader.finish();
}

AttributeList ConvTransposeOp::attributes() const {
  AttributeList list;
  append_geometry(list, geometry_);
  const auto append = [&](const char* name, const std::array<std::int64_t, 2>& entries, std::int64_t depth) {
    std::vector<std::int64_t> integers(entries.begin(), entries.end());
    if (geometry_.volume) integers.insert(integers.begin(), depth);
    list.emplace_back(name, std::move(integers));
  };
  append("output_padding", output_padding_, depth_padding_);
  if (output_shape_) append("output_shape", *output_shape_, depth_size_);
  append_attributes(list, epilogue_);
  return list;
}

// ONNX, ConvTranspose-22: the output shape, given or from SAME, comes first; pads follow from it.
TransposedAxis ConvTransposeOp::axis(const ConvGeometry& geometry, std::size_t i, std::int64_t padding,
                                     std::optional<std::int64_t> output_size, std::int64_t in,
                                     std::int64_t taps) const {
  TransposedAxis a{.in = in, .taps = taps, .stride = geometry.stride[i], .dilation = geometry.dilation[i]};
  const std::int64_t begin = geometry.pads[i], end = geometry.pads[i + 2];
  constexpr std::int64_t most = std::int64_t{1} << 40;  // elements of a tensor
  if (in < 1 || taps < 1) contradiction("input or filter is empty");
  if (a.stride < 1 || a.dilation < 1 || padding < 0)
    contradiction(fmt::format("stride {}, dilation {}, output padding {}", a.stride, a.dilation, padding));
  if (a.stride > most_stride)
    throw Error(ErrorKind::unsupported,
                fmt::format("transposed convolution: stride {} (supported: up to {})", a.stride, most_stride));
  if (begin < 0 || end < 0)
    throw Error(ErrorKind::unsupported, fmt::format("transposed convolution: negative pads {},{}", begin, end));
  if (padding > most || begin > most || end > most || a.dilation > most)
    throw Error(ErrorKind::limit, "transposed convolution: sizes overflow");
  const std::int64_t last = add_dims(multiply_dims(a.stride, in - 1), multiply_dims(a.dilation, taps - 1));
  const std::int64_t whole = add_dims(add_dims(last, 1), padding);
  const bool same = is_same(geometry.auto_pad);
  if (output_size || same) {
    a.out = output_size ? *output_size : multiply_dims(in, a.stride);
    const std::int64_t cropped = std::max<std::int64_t>(0, whole - a.out);
    a.pad = geometry.auto_pad == AutoPad::same_upper ? cropped / 2 : cropped - cropped / 2;
  } else if (geometry.auto_pad == AutoPad::valid) {
    a.out = whole;
  } else {
    a.pad = begin;
    a.out = whole - begin - end;
  }
  if (a.out < 1) contradiction(fmt::format("an output of {} elements", a.out));
  if (a.out > most) throw Error(ErrorKind::limit, "transposed convolution: sizes overflow");
  if (taps == 1) a.dilation = 1;
  return a;
}

TransposedAxis ConvTransposeOp::axis(std::size_t i, std::int64_t in, std::int64_t taps) const {
  const auto size = output_shape_ ? std::optional((*output_shape_)[i]) : std::nullopt;
  return axis(geometry_, i, output_padding_[i], size, in, taps);
}

DepthAxis ConvTransposeOp::depth(std::span<const InputInfo> inputs) const {
  const Shape &x = inputs[input].type.shape, &w = inputs[filter].type.shape;
  const auto size = output_shape_ ? std::optional(depth_size_) : std::nullopt;
  const TransposedAxis a = axis(geometry_.of_depth(), 0, depth_padding_, size, x[2], w[2]);
  return {.in = a.in, .taps = a.taps, .stride = a.stride, .dilation = a.dilation, .pad = a.pad, .out = a.out};
}

std::shared_ptr<const Op> ConvTransposeOp::planes() const {
  auto op = std::make_shared<ConvTransposeOp>(*this);
  op->geometry_.volume = false;
  op->kernel_shape_.clear();
  op->spatial_rank_ = 0;
  return op;
}

TransposedProblem ConvTransposeOp::problem(std::span<const InputInfo> inputs) const {
  const Shape& x = required_input(inputs, input, "X").shape;
  const Shape& w = required_input(inputs, filter, "W").shape;
  if (x.rank() > 5)
    throw Error(ErrorKind::unsupported,
                fmt::format("transposed convolution of {} (1-D to 3-D are supported)", x.str()));
  if (x.rank() < 3 || w.rank() != x.rank())
    contradiction(fmt::format("input {} and filter {} do not match", x.str(), w.str()));
  if (spatial_rank_ != 0 && x.rank() != spatial_rank_ + 2)
    contradiction(fmt::format("attributes for {} spatial axes, input {}", spatial_rank_, x.str()));
  for (std::size_t i = 0; i < kernel_shape_.size(); ++i)
    if (kernel_shape_[i] != w[static_cast<int>(i) + 2])
      contradiction(fmt::format("kernel_shape [{}], filter {}", fmt::join(kernel_shape_, ","), w.str()));
  TransposedProblem p{.n = x[0], .c = x[1], .groups = geometry_.groups};
  if (p.groups < 1 || p.c < 1 || p.c % p.groups != 0 || w[0] != p.c || w[1] < 1)
    contradiction(fmt::format("input {}, filter {} and group {} do not match", x.str(), w.str(), p.groups));
  p.k = multiply_dims(w[1], p.groups);
  const int last = x.rank() - 1;
  if (x.rank() > 3) p.h = axis(0, x[last - 1], w[last - 1]);
  p.w = axis(1, x[last], w[last]);
  if (x.rank() == 5) {
    const DepthAxis depth = this->depth(inputs);
    p.n = multiply_dims(p.n, depth.out);
    p.c = multiply_dims(p.c, depth.taps);
  }
  if (!epilogue_.scale.empty() && epilogue_.scale.size() != static_cast<std::size_t>(p.k))
    throw Error(ErrorKind::internal,
                fmt::format("transposed convolution: {} scales for {} filters", epilogue_.scale.size(), p.k));
  return p;
}

std::vector<TensorType> ConvTransposeOp::infer(std::span<const InputInfo> inputs) const {
  const TensorType& x = required_input(inputs, input, "X");
  require_equal_dtypes(inputs);
  const TransposedProblem p = problem(inputs);
  if (present(inputs, bias)) require_shape("bias", inputs[bias].type.shape, {p.k});
  Shape y = x.shape.with(1, p.k).with(x.shape.rank() - 1, p.w.out);
  if (x.shape.rank() > 3) y = y.with(x.shape.rank() - 2, p.h.out);
  if (x.shape.rank() == 5) y = y.with(2, depth(inputs).out);
  (void)y.elems();
  return {{x.dtype, y}};
}

double ConvTransposeOp::flops(std::span<const InputInfo> inputs, std::span<const TensorType>) const {
  const TransposedProblem p = problem(inputs);
  const Shape& w = inputs[filter].type.shape;
  return 2.0 * static_cast<double>(inputs[input].type.shape.elems()) * static_cast<double>(p.group_k() * p.h.taps) *
         static_cast<double>(p.w.taps * (w.rank() == 5 ? w[2] : 1));
}

std::string ConvTransposeOp::describe(std::span<const InputInfo> inputs) const {
  const TransposedProblem p = problem(inputs);
  return fmt::format("transposed {}x{}x{}x{} -> {}x{}x{}, {}x{} s{}x{} p{}x{} d{}x{} g{}", p.n, p.c, p.h.in, p.w.in,
                     p.k, p.h.out, p.w.out, p.h.taps, p.w.taps, p.h.stride, p.w.stride, p.h.pad, p.w.pad, p.h.dilation,
                     p.w.dilation, p.groups);
}

std::optional<AxisMap> ConvTransposeOp::axis_map(std::span<const InputInfo> inputs, const Shape&) const {
  return axes_kept(inputs.size(), {0});
}

std::shared_ptr<const Op> ConvTransposeOp::with_epilogue(Epilogue changed) const {
  auto op = std::make_shared<ConvTransposeOp>(*this);
  op->epilogue_ = std::move(changed);
  return op;
}

OpParts conv_transpose() { return {.make = make_from<ConvTransposeOp>}; }

}  // namespace lenslet
