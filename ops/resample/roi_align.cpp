// RoiAlign: Y [rois,C,P,Q] are boxes of images X [N,C,H,W], each divided into P x Q bins with linear sampling.

#include "ops/resample/roi_align.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <span>

#include "base/cuda_built.h"
#include "ops/core/checks.h"
#include "ops/core/grain.h"
#include "ops/core/kernel.h"
#include "ops/resample/roi_align_cuda.h"

namespace lenslet {

namespace {

class RoiAlignOp final : public Op {
 public:
  std::int64_t height = 1, width = 1, samples = 0;
  double scale = 1;
  bool largest = false, half_pixel = true;

  explicit RoiAlignOp(const NodeSpec& spec) {
    AttributeReader reader(spec);
    const auto count = [&](std::string_view name, std::int64_t fallback, std::int64_t most) {
      const std::int64_t value = reader.integer(name, fallback);
      if (value < fallback || value > most)
        throw Error(ErrorKind::invalid_model, fmt::format("attribute '{}' is {}", name, value));
      return value;
    };
    const auto either = [&](std::string_view name, std::string_view fallback, std::string_view other) {
      const std::string text = reader.text(name, fallback);
      if (text != fallback && text != other)
        throw Error(ErrorKind::unsupported,
                    fmt::format("attribute '{}' is '{}' (supported: {}, {})", name, text, fallback, other));
      return text == fallback;
    };
    height = count("output_height", 1, 1 << 20);
    width = count("output_width", 1, 1 << 20);
    samples = count("sampling_ratio", 0, 1024);
    scale = reader.real("spatial_scale", 1);
    largest = !either("mode", "avg", "max");
    half_pixel = !spec.before(16) && either("coordinate_transformation_mode", "half_pixel", "output_half_pixel");
    reader.finish();
  }

  std::string_view type() const override { return "RoiAlign"; }
  AttributeList attributes() const override {
    return {{"output_height", height},
            {"output_width", width},
            {"sampling_ratio", samples},
            {"spatial_scale", scale},
            {"mode", std::string(largest ? "max" : "avg")},
            {"coordinate_transformation_mode", std::string(half_pixel ? "half_pixel" : "output_half_pixel")}};
  }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType &x = required_input(inputs, 0, "X"), &boxes = required_input(inputs, 1, "rois");
    const TensorType& images = required_input(inputs, 2, "batch_indices");
    require_rank("input X", x.shape, 4, 4);
    require_rank("input rois", boxes.shape, 2, 2);
    require_dtype("input rois", boxes.dtype, {x.dtype});
    require_dtype("input batch_indices", images.dtype, {DType::i64});
    require_shape("rois", boxes.shape, {boxes.shape[0], 4});
    require_shape("batch_indices", images.shape, {boxes.shape[0]});
    const Shape y{boxes.shape[0], x.shape[1], height, width};
    if (y.elems() > 0 && x.shape.elems() == 0)
      throw Error(ErrorKind::invalid_model, fmt::format("images {} have no elements", x.shape.str()));
    return {{x.dtype, y}};
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape&) const override {
    AxisMap map = axes_kept(inputs.size(), {1});
    for (const std::size_t of_box : {1U, 2U}) {
      map.inputs[of_box].parameter = false;
      map.inputs[of_box].axis[0] = 0;
    }
    return map;
  }
};

RoiAlignShape shape_of(const Binding& binding) {
  const auto& op = binding.op<RoiAlignOp>();
  const Shape &x = binding.shape(0), &y = binding.output_shape();
  RoiAlignShape s{.rois = y[0], .n = x[0], .c = x[1], .h = x[2], .w = x[3], .p = y[2], .q = y[3]};
  const auto of_x = element_strides(x, binding.format(0)), of_y = element_strides(y, binding.output_format());
  s.x_n = of_x[0], s.x_c = of_x[1], s.x_h = of_x[2], s.x_w = of_x[3];
  s.y_n = of_y[0], s.y_c = of_y[1], s.y_p = of_y[2], s.y_q = of_y[3];
  s.scale = op.scale;
  s.offset = op.half_pixel ? 0.5 : 0;
  s.least_size = op.half_pixel ? std::numeric_limits<double>::lowest() : 1;
  s.samples = op.samples;
  s.largest = op.largest;
  return s;
}

/// A sample's four elements of X, as offsets in a channel, and their weights.
struct RoiTaps {
  std::array<std::int64_t, 4> offset;
  std::array<float, 4> weight;

  RoiTaps() = default;
  RoiTaps(const RoiAlignShape& s, const RoiPlace& row, const RoiPlace& column)
      : offset{row.low * s.x_h + column.low * s.x_w, row.low * s.x_h + column.high * s.x_w,
               row.high * s.x_h + column.low * s.x_w, row.high * s.x_h + column.high * s.x_w},
        weight{row.of_low * column.of_low, row.of_low * column.of_high, row.of_high * column.of_low,
               row.of_high * column.of_high} {}
};

/// One element of the channel at `x`: RoiSum with a sample's four terms kept separate until the end.
template <bool largest>
float aligned(std::span<const RoiTaps> samples, double count, const float* x) {
  constexpr float none = largest ? -std::numeric_limits<float>::infinity() : 0;
  std::array<float, 4> sums{none, none, none, none};
  std::array<bool, 4> unknown{};
  for (const RoiTaps& taps : samples)
    for (std::size_t i = 0; i < 4; ++i) {
      const float term = taps.weight[i] * x[taps.offset[i]];
      if constexpr (largest) {  // larger() in two parts that take no branch, which would be mispredicted
        sums[i] = term > sums[i] ? term : sums[i];
        unknown[i] |= term != term;
      } else {
        sums[i] += term;
      }
    }
  if constexpr (largest) {
    if (samples.empty()) return 0;
    if (unknown[0] || unknown[1] || unknown[2] || unknown[3]) return no_number;
    const float most = std::max({sums[0], sums[1], sums[2], sums[3]});
    return static_cast<double>(samples.size()) < count ? std::max(most, 0.0F) : most;
  }
  const float sum = sums[0] + sums[1] + sums[2] + sums[3];
  return count > 1 ? sum / static_cast<float>(count) : sum;
}

/// Elements [p, 0 ... Q) of a box in all channels. Samples are computed once for all channels, and one channel's
/// elements together, because channels are far apart.
void align_line(const RoiAlignShape& s, const float* box, std::int64_t p, const float* image, float* y) {
  constexpr std::size_t most = 256;
  struct Element {
    std::int64_t q;
    double count;
    std::size_t first, samples;
  };
  std::array<RoiTaps, most> samples;
  std::array<Element, most> elements;
  std::size_t used = 0, waiting = 0;
  const auto flush = [&] {
    const auto compute = [&](std::int64_t c, const Element& element) {
      const auto taps = std::span(samples).subspan(element.first, element.samples);
      y[element.q * s.y_q + c * s.y_c] =
          (s.largest ? aligned<true> : aligned<false>)(taps, element.count, image + c * s.x_c);
    };
    const auto all = std::span(elements).first(waiting);
    if (s.x_c == 1) {
      for (const Element& element : all)
        for (std::int64_t c = 0; c < s.c; ++c) compute(c, element);
    } else {
      for (std::int64_t c = 0; c < s.c; ++c)
        for (const Element& element : all) compute(c, element);
    }
    used = waiting = 0;
  };
  for (std::int64_t q = 0; q < s.q; ++q) {
    const RoiBin bin(s, box, p, q);
    std::size_t count = 0;
    const auto find = [&] {
      count = 0;
      bin.each(s, [&](const RoiPlace& row, const RoiPlace& column) {
        if (used + count < most) samples[used + count] = RoiTaps(s, row, column);
        ++count;
      });
    };
    if (bin.known) find();
    if (waiting == most || used + count > most) {
      flush();
      if (bin.known) find();
    }
    if (!bin.known || count > most) {
      for (std::int64_t c = 0; c < s.c; ++c) y[q * s.y_q + c * s.y_c] = bin.element(s, image + c * s.x_c);
      continue;
    }
    elements[waiting++] = {q, bin.count, used, count};
    used += count;
  }
  flush();
}

std::unique_ptr<const BoundKernel> bind_cpu(const Binding& binding) {
  return bound([s = shape_of(binding)](const KernelRun& run) {
    run.pool->parallel_for(s.rois * s.p, 1, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t line = begin; line < end; ++line) {
        const std::int64_t roi = line / s.p, p = line % s.p, image = run.in<std::int64_t>(2)[roi];
        float* const y = run.out<float>() + roi * s.y_n + p * s.y_p;
        if (image >= 0 && image < s.n)
          align_line(s, run.in<float>(1) + 4 * roi, p, run.in<float>(0) + image * s.x_n, y);
        else
          for (std::int64_t q = 0; q < s.q; ++q)
            for (std::int64_t c = 0; c < s.c; ++c) y[q * s.y_q + c * s.y_c] = no_number;
      }
    });
  });
}

std::unique_ptr<const BoundKernel> bind_cuda(const Binding& binding) {
  return bound([s = shape_of(binding)]([[maybe_unused]] const KernelRun& run) {
    if constexpr (cuda_built)
      cuda::roi_align(*run.cuda, s, run.in<float>(0), run.in<float>(1), run.in<std::int64_t>(2), run.out<float>());
  });
}

// A term rounds three times, its sum once more; most roundings of samples cancel.
constexpr auto kernels =
    on_both({.types = dtypes<Types<float>>, .formats = nchw_or_nhwc, .tolerance = 1e-5}, bind_cpu, bind_cuda);

}  // namespace

OpParts roi_align() { return {make_from<RoiAlignOp>, kernels}; }

}  // namespace lenslet
