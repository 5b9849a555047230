// Col2Im: adds overlapping blocks of pixels, one column each, to images.

#include <fmt/format.h>

#include <algorithm>

#include "base/cuda_built.h"
#include "ops/core/checks.h"
#include "ops/core/grain.h"
#include "ops/core/kernel.h"
#include "ops/core/shape_args.h"
#include "ops/core/sum_tolerance.h"
#include "ops/pool/col2im_cuda.h"

namespace lenslet {

namespace {

using Integers = std::vector<std::int64_t>;

class Col2Im final : public Op {
 public:
  explicit Col2Im(const NodeSpec& spec) {
    AttributeReader reader(spec);
    const auto read = [&](std::string_view name, Integers& list, std::int64_t least) {
      list = reader.integers(name);
      for (const std::int64_t value : list)
        if (value < least || value > most)
          throw Error(ErrorKind::invalid_model, fmt::format("attribute {} holds {}", name, value));
    };
    read("dilations", dilations_, 1);
    read("pads", pads_, 0);
    read("strides", strides_, 1);
    reader.finish();
  }

  std::string_view type() const override { return "Col2Im"; }
  AttributeList attributes() const override {
    AttributeList list;
    for (const auto& [name, values] : {std::pair("dilations", &dilations_), {"pads", &pads_}, {"strides", &strides_}})
      if (!values->empty()) list.emplace_back(name, *values);
    return list;
  }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& x = required_input(inputs, 0, "input");
    const Fold fold = this->fold(inputs);
    const AxisInts image = required_axis_ints(inputs, 1, "image_shape");
    Integers y{x.shape[0], x.shape[1] / fold.blocks()};
    y.insert(y.end(), image.span().begin(), image.span().end());
    const Shape shape(y);
    shape.elems();  // throws for impossible sizes
    return {{x.dtype, shape}};
  }
  double flops(std::span<const InputInfo> inputs, std::span<const TensorType>) const override {
    return static_cast<double>(inputs[0].type.shape.elems());
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape&) const override {
    return axes_kept(inputs.size(), {0});
  }

  Fold fold(std::span<const InputInfo> inputs) const {
    const Shape& x = inputs[0].type.shape;
    require_rank("input", x, 3, 3);
    const AxisInts image = required_axis_ints(inputs, 1, "image_shape");
    const AxisInts block = required_axis_ints(inputs, 2, "block_shape");
    const auto rank = static_cast<std::size_t>(image.size);
    const auto fits = [&](const Integers& list, std::size_t size) { return list.empty() || list.size() == size; };
    if (image.size != block.size || !fits(dilations_, rank) || !fits(strides_, rank) || !fits(pads_, 2 * rank))
      throw Error(ErrorKind::invalid_model, "image_shape, block_shape and attributes of different lengths");
    Fold fold;
    if (rank < 1 || rank > fold.axes.size())
      throw Error(ErrorKind::unsupported, fmt::format("images of {} axes (supported: 1 to 3)", rank));
    for (std::size_t i = 0; i < rank; ++i) {
      Fold::Axis& axis = fold.axes[i + fold.axes.size() - rank];
      const std::int64_t after = pads_.empty() ? 0 : pads_[i + rank];
      axis.size = image.values[i];
      axis.block = block.values[i];
      if (axis.size < 1 || axis.size > most || axis.block < 1 || axis.block > most)
        throw Error(ErrorKind::invalid_model, fmt::format("an axis of {} in blocks of {}", axis.size, axis.block));
      if (!strides_.empty()) axis.stride = strides_[i];
      if (!dilations_.empty()) axis.dilation = dilations_[i];
      if (!pads_.empty()) axis.pad = pads_[i];
      const std::int64_t span = axis.dilation * (axis.block - 1) + 1, padded = axis.size + axis.pad + after;
      axis.windows = padded < span ? 0 : (padded - span) / axis.stride + 1;
    }
    const std::int64_t blocks =
        multiply_dims(multiply_dims(fold.axes[0].block, fold.axes[1].block), fold.axes[2].block);
    const std::int64_t windows =
        multiply_dims(multiply_dims(fold.axes[0].windows, fold.axes[1].windows), fold.axes[2].windows);
    if (x[1] % blocks != 0 || x[2] != windows)
      throw Error(ErrorKind::invalid_model,
                  fmt::format("input {} for blocks of {} elements in {} places", x.str(), blocks, windows));
    fold.planes = x[0] * (x[1] / blocks);
    return fold;
  }

 private:
  static constexpr std::int64_t most = std::int64_t{1} << 30;  // so that nothing below overflows
  Integers dilations_, pads_, strides_;                        ///< empty: 1, 0, 1
};

std::unique_ptr<const BoundKernel> bind_cpu(const Binding& binding) {
  return bound([fold = binding.op<Col2Im>().fold(binding.problem.inputs())](const KernelRun& run) {
    const auto& [depth, height, width] = fold.axes;
    const std::int64_t rows = fold.planes * depth.size * height.size;
    run.pool->parallel_for(
        rows, std::max<std::int64_t>(1, elementwise_grain / (width.size * fold.blocks())),
        [&, &depth = depth, &height = height, &width = width](std::int64_t begin, std::int64_t end, int) {
          // The window whose element `tap` falls on pixel `at`; -1: none.
          const auto window = [](const Fold::Axis& axis, std::int64_t at, std::int64_t tap) {
            const std::int64_t from = at + axis.pad - tap * axis.dilation, index = from / axis.stride;
            return from >= 0 && index * axis.stride == from && index < axis.windows ? index : -1;
          };
          for (std::int64_t row = begin; row < end; ++row) {
            const std::int64_t plane = row / height.size / depth.size;
            float* y = run.out<float>() + row * width.size;
            std::fill_n(y, width.size, 0.0F);
            for (std::int64_t tap = 0; tap < fold.blocks(); ++tap) {
              const std::int64_t d = window(depth, row / height.size % depth.size, tap / width.block / height.block);
              const std::int64_t h = window(height, row % height.size, tap / width.block % height.block);
              if (d < 0 || h < 0) continue;
              const float* x = run.in<float>(0) + (plane * fold.blocks() + tap) * fold.windows() +
                               (d * height.windows + h) * width.windows;
              // Window i has pixel first + i * stride.
              const std::int64_t first = tap % width.block * width.dilation - width.pad;
              const std::int64_t skipped = first < 0 ? (-first + width.stride - 1) / width.stride : 0;
              const std::int64_t stop = std::min(width.windows, (width.size - first + width.stride - 1) / width.stride);
              if (width.stride == 1)
                for (std::int64_t i = skipped; i < stop; ++i) y[first + i] += x[i];
              else
                for (std::int64_t i = skipped; i < stop; ++i) y[first + i * width.stride] += x[i];
            }
          }
        });
  });
}

std::unique_ptr<const BoundKernel> bind_cuda(const Binding& binding) {
  return bound([fold = binding.op<Col2Im>().fold(binding.problem.inputs())](const KernelRun& run) {
    if constexpr (cuda_built) cuda::col2im(*run.cuda, fold, run.in<float>(0), run.out<float>());
  });
}

double tolerance_for(const Problem& problem) {
  return sum_tolerance(problem.as<Col2Im>().fold(problem.inputs()).blocks());
}

constexpr auto kernels = on_both({.types = dtypes<Types<float>>, .tolerance_for = tolerance_for, .reads = input_bit(0)},
                                 bind_cpu, bind_cuda);

}  // namespace

OpParts col2im() { return {make_from<Col2Im>, kernels}; }

}  // namespace lenslet
