// DeformConv: a convolution whose taps are moved by learned offsets and interpolated. Deformed im2col, then a GEMM.

#include "ops/conv/deform_conv.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/cuda_built.h"
#include "ops/core/checks.h"
#include "ops/core/config_text.h"
#include "ops/core/kernel.h"
#include "ops/core/sum_tolerance.h"
#include "ops/gemm/gemm.h"

namespace lenslet {

namespace {

using Ints = std::vector<std::int64_t>;

/// Inputs: X [N,C,H,W], W, offset, B (optional), mask (optional).
class DeformConvOp final : public Op {
 public:
  static constexpr std::size_t x = 0, filter = 1, offset = 2, bias = 3, mask = 4;

  explicit DeformConvOp(const NodeSpec& spec) {
    AttributeReader reader(spec);
    kernel_ = reader.integers("kernel_shape");
    strides_ = list(reader, "strides", 2, 1, 1);
    dilations_ = list(reader, "dilations", 2, 1, 1);
    pads_ = list(reader, "pads", 4, 0, 0);
    groups_ = reader.integer("group", 1);
    offset_groups_ = reader.integer("offset_group", 1);
    reader.finish();
  }

  std::string_view type() const override { return "DeformConv"; }
  AttributeList attributes() const override {
    AttributeList all{{"strides", strides_},
                      {"dilations", dilations_},
                      {"pads", pads_},
                      {"group", groups_},
                      {"offset_group", offset_groups_}};
    if (!kernel_.empty()) all.emplace_back("kernel_shape", kernel_);
    return all;
  }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const DeformProblem d = problem(inputs);
    return {{inputs[x].type.dtype, Shape{d.n, d.k, d.p, d.q}}};
  }
  double flops(std::span<const InputInfo> inputs, std::span<const TensorType> outputs) const override {
    return static_cast<double>(outputs[0].shape.elems()) * 2 * static_cast<double>(problem(inputs).gemm_k());
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape&) const override {
    AxisMap map = axes_kept(inputs.size(), {0});
    for (const std::size_t i : {offset, mask})
      if (i < inputs.size()) {
        map.inputs[i].parameter = false;
        map.inputs[i].axis[0] = 0;
      }
    return map;
  }

  DeformProblem problem(std::span<const InputInfo> inputs) const {
    const Shape &of_x = required_input(inputs, x, "X").shape, &of_w = required_input(inputs, filter, "W").shape;
    const Shape& of_offset = required_input(inputs, offset, "offset").shape;
    require_rank("input X", of_x, 4, 4);
    require_rank("input W", of_w, 4, 4);
    require_equal_dtypes(inputs);
    if (!kernel_.empty() && kernel_ != Ints{of_w[2], of_w[3]})
      throw Error(ErrorKind::invalid_model, fmt::format("attribute 'kernel_shape' is not that of W {}", of_w.str()));
    if (groups_ < 1 || offset_groups_ < 1 || of_x[1] % groups_ != 0 || of_x[1] % offset_groups_ != 0 ||
        of_w[0] % groups_ != 0 || of_w[1] != of_x[1] / groups_ || of_w[2] < 1 || of_w[3] < 1)
      throw Error(ErrorKind::invalid_model, fmt::format("X {} and W {} in {} groups, {} of offsets", of_x.str(),
                                                        of_w.str(), groups_, offset_groups_));
    DeformProblem d{.n = of_x[0], .c = of_x[1], .h = of_x[2], .w = of_x[3], .k = of_w[0], .r = of_w[2], .s = of_w[3]};
    d.groups = groups_, d.offset_groups = offset_groups_;
    d.stride_h = strides_[0], d.stride_w = strides_[1];
    d.dilation_h = dilations_[0], d.dilation_w = dilations_[1];
    d.pad_top = pads_[0], d.pad_left = pads_[1];
    d.p = windows(d.h + pads_[0] + pads_[2], d.r, d.stride_h, d.dilation_h);
    d.q = windows(d.w + pads_[1] + pads_[3], d.s, d.stride_w, d.dilation_w);
    require_shape("input offset", of_offset, Shape{d.n, offset_groups_ * d.taps() * 2, d.p, d.q});
    if (present(inputs, bias)) require_shape("input B", inputs[bias].type.shape, Shape{d.k});
    if (present(inputs, mask))
      require_shape("input mask", inputs[mask].type.shape, Shape{d.n, offset_groups_ * d.taps(), d.p, d.q});
    return d;
  }

 private:
  static Ints list(AttributeReader& reader, const char* name, std::size_t length, std::int64_t fallback,
                   std::int64_t least) {
    Ints values = reader.integers(name);
    if (values.empty()) values.assign(length, fallback);
    if (values.size() != length)
      throw Error(ErrorKind::unsupported,
                  fmt::format("attribute '{}' has {} entries (supported: {}, of images)", name, values.size(), length));
    constexpr std::int64_t most = std::int64_t{1} << 30;
    for (const std::int64_t value : values)
      if (value < least || value > most)
        throw Error(ErrorKind::invalid_model, fmt::format("attribute '{}' holds {}", name, value));
    return values;
  }
  static std::int64_t windows(std::int64_t length, std::int64_t kernel, std::int64_t stride, std::int64_t dilation) {
    const std::int64_t room = length - (kernel - 1) * dilation - 1;
    if (room < 0)
      throw Error(ErrorKind::invalid_model,
                  fmt::format("a window of {} taps, {} apart, does not fit into {}", kernel, dilation, length));
    return room / stride + 1;
  }

  Ints kernel_, strides_, dilations_, pads_;
  std::int64_t groups_ = 1, offset_groups_ = 1;
};

DeformProblem problem_of(const Problem& node) { return node.as<DeformConvOp>().problem(node.inputs()); }

/// Pieces of output pixels, their columns [C][taps][pixels] packed as the GEMM's B.
class BoundOnCpu final : public BoundKernel {
 public:
  explicit BoundOnCpu(const Binding& binding) : d_(problem_of(binding.problem)), threads_(binding.threads()) {
    constexpr std::int64_t piece_floats = 64 << 10;  // stay in L2
    const std::int64_t tile = gemm_tile_cols(), rows = std::max<std::int64_t>(1, d_.c * d_.taps());
    step_ = std::max(tile, std::min<std::int64_t>(piece_floats / rows, 512) / tile * tile);
    step_ = std::clamp<std::int64_t>(d_.pixels(), 1, step_);
    columns_ = (d_.c * d_.taps() * step_ + 15) / 16 * 16;
    packed_ = (packed_b_floats(d_.gemm_k(), step_) + 15) / 16 * 16;
  }

  std::size_t workspace_bytes() const override {
    return static_cast<std::size_t>(threads_ * (columns_ + packed_)) * sizeof(float);
  }

  void run(const KernelRun& run) const override {
    if (d_.y_elems() == 0) return;
    const std::int64_t pieces = (d_.pixels() + step_ - 1) / step_;
    run.pool->parallel_for(d_.n * pieces, 1, [&](std::int64_t begin, std::int64_t end, int worker) {
      float* const columns = reinterpret_cast<float*>(run.workspace.data()) + worker * (columns_ + packed_);
      for (std::int64_t piece = begin; piece < end; ++piece) {
        const std::int64_t first = piece % pieces * step_;
        compute(run, piece / pieces, first, std::min(step_, d_.pixels() - first), columns);
      }
    });
  }

 private:
  // Pixels whose sampling points serve all channels before the next: a cache line of a column.
  static constexpr std::int64_t together = 16;

  void compute(const KernelRun& run, std::int64_t image, std::int64_t first, std::int64_t count, float* columns) const {
    const std::int64_t taps = d_.taps(), pixels = d_.pixels(), planes = taps * pixels, shared = d_.offset_channels();
    const float* const x = run.in<float>(DeformConvOp::x) + image * d_.c * d_.h * d_.w;
    const float* const mask = run.in<float>(DeformConvOp::mask);
    for (std::int64_t group = 0; group < d_.offset_groups; ++group) {
      const std::int64_t plane = (image * d_.offset_groups + group) * planes;
      const float* const offsets = run.in<float>(DeformConvOp::offset) + 2 * plane;
      for (std::int64_t tap = 0; tap < taps; ++tap)
        for (std::int64_t i = 0; i < count; i += together) {
          DeformPoint points[together];
          const std::int64_t here = std::min(together, count - i);
          for (std::int64_t j = 0; j < here; ++j)
            points[j] = DeformPoint(d_, offsets, mask == nullptr ? nullptr : mask + plane, tap, first + i + j);
          const bool inside = std::all_of(points, points + here, [](const DeformPoint& p) { return p.inside(); });
          for (std::int64_t c = group * shared; c < (group + 1) * shared; ++c) {
            const float* const channel = x + c * d_.h * d_.w;
            float* const column = columns + (c * taps + tap) * count + i;
            for (std::int64_t j = 0; j < here; ++j) column[j] = inside ? points[j].within(channel) : points[j](channel);
          }
        }
    }
    const std::int64_t gemm_k = d_.gemm_k(), group_k = d_.k / d_.groups;
    const float* const bias = run.in<float>(DeformConvOp::bias);
    float* const packed = columns + columns_;
    for (std::int64_t group = 0; group < d_.groups; ++group) {
      float* const y = run.out<float>() + (image * d_.k + group * group_k) * pixels + first;
      for (std::int64_t k = 0; k < group_k; ++k)
        std::fill_n(y + k * pixels, count, bias == nullptr ? 0.0F : bias[group * group_k + k]);
      if (gemm_k == 0) continue;
      pack_b(columns + group * gemm_k * count, count, 1, gemm_k, count, packed);
      gemm_serial({.m = group_k,
                   .n = count,
                   .k = gemm_k,
                   .a = {.base = run.in<float>(DeformConvOp::filter) + group * group_k * gemm_k, .stride = gemm_k},
                   .b = packed,
                   .c = y,
                   .ldc = pixels,
                   .accumulate = true,
                   .activation = {}});
    }
  }

  DeformProblem d_;
  std::int64_t threads_, step_ = 1;
  std::int64_t columns_ = 0, packed_ = 0;  ///< floats a thread
};

/// An element of a column is rounded several times before it is multiplied.
double tolerance_of(const DeformProblem& d) { return sum_tolerance(d.gemm_k()) + 16 * 0x1p-24; }

Offer offer_cuda(const Problem& problem, const Target& target) {
  if (const std::string& reason = target.device.cublas_reason; !reason.empty()) return Offer::refuse(reason);
  const DeformProblem d = problem_of(problem);
  constexpr std::int64_t most = std::int64_t{1} << 30, most_blocks = 65535;
  if (d.pixels() > most || d.k > most || d.c * d.taps() > most) return Offer::refuse("a size exceeds 2^30");
  if (d.c + d.offset_groups > most_blocks) return Offer::refuse("more than 65535 channels");
  const bool tf32 = target.numerics.multiply == Numerics::Multiply::tf32;
  Candidate candidate;
  candidate.inputs.assign(problem.inputs().size(), formats::nchw);
  candidate.outputs = {formats::nchw};
  ConfigWriter config;
  config.add("tf32", tf32);
  candidate.config = config.str();
  candidate.needs_cublas = true;
  candidate.estimated_us = target.device.launch_us + problem.bytes() / target.device.bytes_per_us;
  candidate.tolerance = tolerance_of(d) + (tf32 ? tf32_sum_tolerance(d.gemm_k()) : 0);
  if constexpr (cuda_built)
    candidate.workspace_bytes = static_cast<std::size_t>(cuda::deform_columns(d)) * sizeof(float);
  return candidate;
}

std::unique_ptr<const BoundKernel> bind_cuda(const Binding& binding) {
  if constexpr (cuda_built) {
    const DeformProblem d = problem_of(binding.problem);
    ConfigReader reader(binding.candidate.config);
    const auto multiply = reader.flag("tf32") ? Numerics::Multiply::tf32 : Numerics::Multiply::fp32;
    reader.finish();
    const auto run_on = [d, multiply](const KernelRun& run) {
      cuda::deform_conv(*run.cuda, d, multiply, run.in<float>(DeformConvOp::x), run.in<float>(DeformConvOp::filter),
                        run.in<float>(DeformConvOp::offset), run.in<float>(DeformConvOp::bias),
                        run.in<float>(DeformConvOp::mask), run.out<float>(),
                        reinterpret_cast<float*>(run.workspace.data()));
    };
    return bound(run_on, static_cast<std::size_t>(cuda::deform_columns(d)) * sizeof(float));
  }
  return nullptr;
}

constexpr SimpleKernel kernels[] = {
    {.types = dtypes<Types<float>>,
     .tolerance_for = [](const Problem& problem) { return tolerance_of(problem_of(problem)); },
     .bind = bind<BoundOnCpu>},
    {.device = DeviceKind::cuda, .types = dtypes<Types<float>>, .offer = offer_cuda, .bind = bind_cuda},
};

}  // namespace

OpParts deform_conv() { return {make_from<DeformConvOp>, kernels}; }

}  // namespace lenslet
