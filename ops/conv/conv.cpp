#include "ops/conv/conv.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "ops/core/checks.h"
#include "ops/core/shape_args.h"

namespace lenslet {

std::array<std::int64_t, 2> per_axis(const std::vector<std::int64_t>& list, const char* name, std::int64_t fallback,
                                     int& rank, std::int64_t& depth) {
  depth = fallback;
  if (list.empty()) return {fallback, fallback};
  const int entries = static_cast<int>(list.size());
  if (list.size() > 3)
    throw Error(ErrorKind::unsupported,
                fmt::format("{}-D convolution ({} has {} entries); 1-D to 3-D are supported", entries, name, entries));
  if (rank != 0 && rank != entries)
    throw Error(ErrorKind::invalid_model,
                fmt::format("attribute {} has {} entries where others speak of {} axes", name, entries, rank));
  rank = entries;
  if (entries == 3) depth = list[0];
  if (entries == 1) return {fallback, list[0]};
  return {list[list.size() - 2], list.back()};
}

void read_geometry(AttributeReader& reader, VolumeGeometry& geometry, std::vector<std::int64_t>& kernel_shape,
                   int& rank) {
  kernel_shape = reader.integers("kernel_shape");
  std::int64_t taps = 1;
  (void)per_axis(kernel_shape, "kernel_shape", 1, rank, taps);
  geometry.stride = per_axis(reader.integers("strides"), "strides", 1, rank, geometry.depth_stride);
  geometry.dilation = per_axis(reader.integers("dilations"), "dilations", 1, rank, geometry.depth_dilation);
  // First the begins of all axes, then the ends.
  const std::vector<std::int64_t> pads = reader.integers("pads");
  if (pads.size() % 2 != 0)
    throw Error(ErrorKind::invalid_model, fmt::format("attribute pads has {} entries, an odd number", pads.size()));
  const auto half = static_cast<std::ptrdiff_t>(pads.size() / 2);
  const auto begins = per_axis({pads.begin(), pads.begin() + half}, "pads (begins)", 0, rank, geometry.front);
  const auto ends = per_axis({pads.begin() + half, pads.end()}, "pads (ends)", 0, rank, geometry.back);
  geometry.pads = {begins[0], begins[1], ends[0], ends[1]};
  geometry.auto_pad = parse_auto_pad(reader.text("auto_pad", "NOTSET"));
  geometry.groups = reader.integer("group", 1);
  geometry.volume = rank == 3;
}

void append_geometry(AttributeList& list, const VolumeGeometry& geometry) {
  using Integers = std::vector<std::int64_t>;
  Integers strides(geometry.stride.begin(), geometry.stride.end());
  Integers dilations(geometry.dilation.begin(), geometry.dilation.end());
  Integers pads(geometry.pads.begin(), geometry.pads.end());
  if (geometry.volume) {
    strides.insert(strides.begin(), geometry.depth_stride);
    dilations.insert(dilations.begin(), geometry.depth_dilation);
    pads.insert(pads.begin() + 2, geometry.back);
    pads.insert(pads.begin(), geometry.front);
  }
  list.emplace_back("strides", std::move(strides));
  list.emplace_back("dilations", std::move(dilations));
  list.emplace_back("pads", std::move(pads));
  if (geometry.auto_pad != AutoPad::notset) list.emplace_back("auto_pad", std::string(to_string(geometry.auto_pad)));
  list.emplace_back("group", geometry.groups);
}

Shape plane_images(const Shape& x, const DepthAxis& depth) {
  return {multiply_dims(x[0], depth.out), multiply_dims(x[1], depth.taps), x[3], x[4]};
}
Shape plane_filters(const Shape& w) { return {w[0], multiply_dims(w[1], w[2]), w[3], w[4]}; }

namespace {

void read_max_pool(const std::vector<std::int64_t>& list, MaxWindows& windows) {
  std::int8_t* const fields[] = {&windows.size,     &windows.stride,     &windows.pad_top,
                                 &windows.pad_left, &windows.pad_bottom, &windows.pad_right};
  for (std::size_t i = 0; i < std::min(list.size(), std::size(fields)); ++i) {
    if (list[i] < 0 || list[i] > INT8_MAX)
      throw Error(ErrorKind::internal, fmt::format("convolution: maxima of [{}]", fmt::join(list, ",")));
    *fields[i] = static_cast<std::int8_t>(list[i]);
  }
}

}  // namespace

ConvOp::ConvOp(const NodeSpec& spec) {
  AttributeReader reader(spec);
  read_geometry(reader, geometry_, kernel_shape_, spatial_rank_);
  if (spec.normalised) {
    if (!geometry_.volume) spatial_rank_ = 0;  // two entries a list, whatever the rank
    read_epilogue(reader, epilogue_);
    read_max_pool(reader.integers("max_pool"), max_pool_);
  }
  reader.finish();
}

ConvOp::ConvOp(const ConvProblem& p, std::vector<float> scale)
    : geometry_{{.stride = {p.stride_h, p.stride_w},
                 .dilation = {p.dilation_h, p.dilation_w},
                 .pads = {p.pad_top, p.pad_left, p.pad_bottom, p.pad_right},
                 .groups = p.groups}},
      max_pool_(p.max_pool) {
  epilogue_.activation = p.activation;
  epilogue_.scale = std::move(scale);
}

AttributeList ConvOp::attributes() const {
  AttributeList list;
  append_geometry(list, geometry_);
  append_attributes(list, epilogue_);
  if (const MaxWindows& m = max_pool_)
    list.emplace_back("max_pool",
                      std::vector<std::int64_t>{m.size, m.stride, m.pad_top, m.pad_left, m.pad_bottom, m.pad_right});
  return list;
}

ConvProblem ConvOp::problem(std::span<const InputInfo> inputs) const {
  const Shape& x = inputs[input].type.shape;
  const Shape& w = inputs[filter].type.shape;
  if (spatial_rank_ != 0 && x.rank() != spatial_rank_ + 2 && x.rank() >= 3 && x.rank() <= 5)
    throw Error(ErrorKind::invalid_model, fmt::format("convolution: attributes for {} spatial axes, input {} has {}",
                                                      spatial_rank_, x.str(), x.rank() - 2));
  if (x.rank() == 5 && w.rank() != 5)
    throw Error(ErrorKind::invalid_model,
                fmt::format("convolution: input {} and filter {} differ in rank", x.str(), w.str()));
  ConvProblem problem = x.rank() == 5 ? resolve_conv(plane_images(x, depth(inputs)), plane_filters(w), geometry_)
                                      : resolve_conv(x, w, geometry_);
  for (std::size_t i = 0; i < kernel_shape_.size(); ++i)
    if (kernel_shape_[i] != w[static_cast<int>(i) + 2])
      throw Error(ErrorKind::invalid_model, fmt::format("convolution: kernel_shape [{}] contradicts filter {}",
                                                        fmt::join(kernel_shape_, ","), w.str()));
  if (!epilogue_.scale.empty() && epilogue_.scale.size() != static_cast<std::size_t>(problem.k))
    throw Error(ErrorKind::internal,
                fmt::format("convolution: {} scales for {} filters", epilogue_.scale.size(), problem.k));
  problem.bias = present(inputs, bias);
  problem.residual = present(inputs, residual);
  problem.activation = epilogue_.activation;
  problem.storage = problem.x_storage = inputs[input].type.dtype;
  problem.filter_type = inputs[filter].type.dtype;
  if (const auto& to = epilogue_.requantize) {
    problem.storage = to->type;
    problem.accumulator_type = DType::i32;
    problem.requantized = true;
    problem.x_zero_point = to->x_zero_point;
    problem.y_zero_point = to->zero_point;
    problem.y_least = to->least;
    problem.y_most = to->most;
  }
  problem.max_pool = max_pool_;
  return problem;
}

DepthAxis ConvOp::depth(std::span<const InputInfo> inputs) const {
  const Shape &x = inputs[input].type.shape, &w = inputs[filter].type.shape;
  const ConvProblem p = resolve_conv({x[0], x[1], x[2], 1}, {w[0], w[1], w[2], 1}, geometry_.of_depth());
  return {.in = p.h, .taps = p.r, .stride = p.stride_h, .dilation = p.dilation_h, .pad = p.pad_top, .out = p.p};
}

std::shared_ptr<const Op> ConvOp::planes() const {
  auto op = std::make_shared<ConvOp>(*this);
  op->geometry_.volume = false;
  op->kernel_shape_.clear();
  op->spatial_rank_ = 0;
  return op;
}

std::vector<TensorType> ConvOp::infer(std::span<const InputInfo> inputs) const {
  if (!present(inputs, input) || !present(inputs, filter))
    throw Error(ErrorKind::invalid_model, "convolution: input or filter is left out");
  DType dtype = inputs[input].type.dtype;
  if (epilogue_.requantize)
    dtype = requantized_type(epilogue_, inputs);
  else
    require_equal_dtypes(inputs);
  const ConvProblem problem = this->problem(inputs);
  const Shape& x = inputs[input].type.shape;
  if (problem.max_pool && (x.rank() != 4 || problem.residual))
    throw Error(ErrorKind::internal, "convolution: only 2-D ones without residual are pooled");
  const Shape y = x.rank() == 3   ? Shape{problem.n, problem.k, problem.q}
                  : x.rank() == 4 ? Shape{problem.n, problem.k, problem.stored_p(), problem.stored_q()}
                                  : Shape{x[0], problem.k, depth(inputs).out, problem.p, problem.q};
  if (problem.bias && inputs[bias].type.shape != Shape{problem.k})
    throw Error(ErrorKind::invalid_model,
                fmt::format("convolution: bias {} for {} output channels", inputs[bias].type.shape.str(), problem.k));
  if (problem.residual && inputs[residual].type.shape != y)
    throw Error(ErrorKind::invalid_model,
                fmt::format("convolution: residual {} added to output {}", inputs[residual].type.shape.str(), y.str()));
  return {{dtype, y}};
}

double ConvOp::flops(std::span<const InputInfo> inputs, std::span<const TensorType>) const {
  return problem(inputs).flops();
}

std::optional<AxisMap> ConvOp::axis_map(std::span<const InputInfo> inputs, const Shape&) const {
  return axes_kept(inputs.size(), {0});
}

std::shared_ptr<const Op> ConvOp::with_epilogue(Epilogue changed) const {
  auto op = std::make_shared<ConvOp>(*this);
  op->epilogue_ = std::move(changed);
  return op;
}

std::optional<std::vector<std::int64_t>> ConvOp::imagined_zeros(std::span<const InputInfo> inputs) const {
  const ConvProblem p = problem(inputs);
  if (inputs[input].type.shape.rank() == 3) return {{p.pad_left, p.pad_right}};
  if (inputs[input].type.shape.rank() == 5) {
    const Shape &x = inputs[input].type.shape, &w = inputs[filter].type.shape;
    const ConvProblem d = resolve_conv({x[0], x[1], x[2], 1}, {w[0], w[1], w[2], 1}, geometry_.of_depth());
    return {{d.pad_top, p.pad_top, p.pad_left, d.pad_bottom, p.pad_bottom, p.pad_right}};
  }
  return {{p.pad_top, p.pad_left, p.pad_bottom, p.pad_right}};
}

std::shared_ptr<const Op> ConvOp::imagining_zeros(std::vector<std::int64_t> pads) const {
  auto op = std::make_shared<ConvOp>(*this);
  op->geometry_.auto_pad = AutoPad::notset;
  if (pads.size() == 2) {
    op->geometry_.pads = {0, pads[0], 0, pads[1]};
  } else if (pads.size() == 6) {
    op->geometry_.pads = {pads[1], pads[2], pads[4], pads[5]};
    op->geometry_.front = pads[0];
    op->geometry_.back = pads[3];
    op->geometry_.volume = true;
  } else {
    op->geometry_.pads = {pads[0], pads[1], pads[2], pads[3]};
  }
  return op;
}

namespace {

// Whether tap t reads an element of the axis for some output.
bool reads(const DepthAxis& axis, std::int64_t t) {
  const std::int64_t before = axis.pad - t * axis.dilation;  // output 0 reads element -before
  const std::int64_t o = before <= 0 ? 0 : (before + axis.stride - 1) / axis.stride;
  return o < axis.out && o * axis.stride - before < axis.in;
}

}  // namespace

std::optional<CroppedFilter> ConvOp::without_idle_taps(std::span<const InputInfo> inputs) const {
  const int rank = inputs[input].type.shape.rank() - 2;
  const ConvProblem p = problem(inputs);
  std::vector<DepthAxis> axes{{p.w, p.s, p.stride_w, p.dilation_w, p.pad_left, p.q}};
  if (rank > 1) axes.insert(axes.begin(), {p.h, p.r, p.stride_h, p.dilation_h, p.pad_top, p.p});
  if (rank > 2) axes.insert(axes.begin(), depth(inputs));

  CroppedFilter cropped;
  std::vector<std::int64_t> pads = *imagined_zeros(inputs);
  bool idle = false;
  for (std::size_t a = 0; a < axes.size(); ++a) {
    std::int64_t begin = 0, end = axes[a].taps, &before = pads[a], &after = pads[a + axes.size()];
    // Dropped taps take their share of the padding with them, which must not become negative.
    for (; begin + 1 < end && before >= axes[a].dilation && !reads(axes[a], begin); ++begin) before -= axes[a].dilation;
    for (; begin + 1 < end && after >= axes[a].dilation && !reads(axes[a], end - 1); --end) after -= axes[a].dilation;
    idle = idle || end - begin < axes[a].taps;
    cropped.begins.push_back(begin);
    cropped.ends.push_back(end);
  }
  if (!idle) return std::nullopt;
  auto op = std::make_shared<ConvOp>(static_cast<const ConvOp&>(*imagining_zeros(std::move(pads))));
  op->kernel_shape_.clear();
  cropped.op = std::move(op);
  return cropped;
}

std::unique_ptr<const Problem> pose(const ConvProblem& p, const Tensor& w, std::vector<float> scale) {
  const auto known = [&](DType dtype, Shape shape, bool there) {
    return InputInfo{.present = there, .type = {dtype, there ? shape : Shape()}};
  };
  const Shape y{p.n, p.k, p.stored_p(), p.stored_q()};
  std::vector<InputInfo> inputs{known(p.x_storage, {p.n, p.c, p.h, p.w}, true),
                                known(p.filter_type, {p.k, p.group_c(), p.r, p.s}, true),
                                known(p.accumulator_type, {p.k}, p.bias), known(p.storage, y, p.residual)};
  if (!w.empty()) inputs[ConvOp::filter].constant = &w;
  return std::make_unique<const Problem>(std::make_shared<ConvOp>(p, std::move(scale)), inputs,
                                         std::vector<TensorType>{{p.storage, y}});
}

std::string ConvOp::describe(std::span<const InputInfo> inputs) const {
  ConvProblem without_pool = problem(inputs);
  without_pool.max_pool = {};
  std::string text = without_pool.str();
  if (inputs[input].type.shape.rank() != 5) return text;
  const DepthAxis d = depth(inputs);
  return fmt::format("{} by depth {} -> {}, {} s{} p{} d{}", text, d.in, d.out, d.taps, d.stride, d.pad, d.dilation);
}

OpParts conv() {
  return {.make = [](const NodeSpec& spec) -> std::shared_ptr<const Op> { return std::make_shared<ConvOp>(spec); }};
}

}  // namespace lenslet
