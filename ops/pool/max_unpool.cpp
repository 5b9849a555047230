// MaxUnpool: puts each element where its index says that MaxPool took it from; zeros elsewhere.

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <limits>

#include "base/cuda_built.h"
#include "ops/core/checks.h"
#include "ops/core/grain.h"
#include "ops/core/kernel.h"
#include "ops/core/shape_args.h"
#include "ops/core/strided_copy.h"
#include "ops/pool/max_unpool_cuda.h"

namespace lenslet {

namespace {

using Ints = std::vector<std::int64_t>;

/// Inputs: X [N,C,...] of rank 3 to 5, I of its shape, optionally output_shape. Indices refer to the tensor implied by
/// kernel, strides and pads; a larger output_shape has that tensor in its corner.
class MaxUnpoolOp final : public Op {
 public:
  explicit MaxUnpoolOp(const NodeSpec& spec) {
    AttributeReader reader(spec);
    kernel_ = reader.integers("kernel_shape");
    if (kernel_.empty()) throw Error(ErrorKind::invalid_model, "attribute 'kernel_shape' is missing");
    strides_ = reader.integers("strides");
    pads_ = reader.integers("pads");
    if (strides_.empty()) strides_.assign(kernel_.size(), 1);
    if (pads_.empty()) pads_.assign(2 * kernel_.size(), 0);
    if (strides_.size() != kernel_.size() || pads_.size() != 2 * kernel_.size())
      throw Error(ErrorKind::invalid_model, fmt::format("{} kernel sizes, {} strides and {} pads contradict each other",
                                                        kernel_.size(), strides_.size(), pads_.size()));
    constexpr std::int64_t most = std::int64_t{1} << 30;
    const auto check = [](const Ints& list, std::int64_t least, const char* name) {
      for (const std::int64_t value : list)
        if (value < least || value > most)
          throw Error(ErrorKind::invalid_model, fmt::format("attribute '{}' holds {}", name, value));
    };
    check(kernel_, 1, "kernel_shape");
    check(strides_, 1, "strides");
    check(pads_, 0, "pads");
    reader.finish();
  }

  std::string_view type() const override { return "MaxUnpool"; }
  AttributeList attributes() const override {
    return {{"kernel_shape", kernel_}, {"strides", strides_}, {"pads", pads_}};
  }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType &x = required_input(inputs, 0, "X"), &indices = required_input(inputs, 1, "I");
    require_rank("input X", x.shape, 3, 5);
    if (kernel_.size() != static_cast<std::size_t>(x.shape.rank() - 2))
      throw Error(ErrorKind::invalid_model,
                  fmt::format("attribute 'kernel_shape' has {} entries for an input of shape {}", kernel_.size(),
                              x.shape.str()));
    require_shape("input I", indices.shape, x.shape);
    require_dtype("input I", indices.dtype, {DType::i64});
    const Shape indexed = this->indexed(x.shape);
    const auto wanted = constant_axis_ints(inputs, 2, "output_shape");
    if (!wanted) return {{x.dtype, indexed}};
    bool fits = wanted->size == indexed.rank() && (*wanted)[0] == x.shape[0] && (*wanted)[1] == x.shape[1];
    for (int i = 2; fits && i < indexed.rank(); ++i) fits = (*wanted)[i] >= indexed[i];
    if (!fits)
      throw Error(ErrorKind::invalid_model,
                  fmt::format("output_shape does not hold the {} that is unpooled", indexed.str()));
    return {{x.dtype, Shape(wanted->span())}};
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo>, const Shape&) const override {
    return std::nullopt;  // an index includes image and channel
  }

  /// The shape that indices refer to.
  Shape indexed(const Shape& x) const {
    Shape shape = x;
    for (std::size_t i = 0; i < kernel_.size(); ++i) {
      const int axis = static_cast<int>(i) + 2;
      const std::int64_t out = multiply_dims(std::max<std::int64_t>(x[axis] - 1, 0), strides_[i]) + kernel_[i] -
                               pads_[i] - pads_[i + kernel_.size()];
      if (out < 0)
        throw Error(ErrorKind::invalid_model,
                    fmt::format("pads {} and {} leave nothing of axis {}", pads_[i], pads_[i + kernel_.size()], axis));
      shape = shape.with(axis, out);
    }
    return shape;
  }

 private:
  Ints kernel_, strides_, pads_;
};

/// From the indexed tensor to the output, in the same order.
StridedLoops corner(const Binding& binding) {
  const Shape indexed = binding.op<MaxUnpoolOp>().indexed(binding.shape(0));
  return {indexed, formats::nchw, element_strides(indexed, formats::nchw),
          element_strides(binding.output_shape(), formats::nchw)};
}

/// Output offset of an element of the indexed tensor.
std::int64_t place(const StridedLoops& loops, std::int64_t index) {
  std::int64_t at = 0;
  for (int i = loops.rank() - 1; i >= 0; --i) {
    at += index % loops[i].dim * loops[i].to;
    index /= loops[i].dim;
  }
  return at;
}

std::unique_ptr<const BoundKernel> bind_cpu(const Binding& binding) {
  const Shape& x = binding.shape(0);
  const std::int64_t planes = x[0] * x[1], most = binding.op<MaxUnpoolOp>().indexed(x).elems();
  const auto run_on = [=, loops = corner(binding)](const KernelRun& run) {
    const auto* values = run.in<float>(0);
    const auto* indices = run.in<std::int64_t>(1);
    auto* y = run.out<float>();
    if (run.outputs[0].elems() == 0) return;
    const std::int64_t in = run.inputs[0].elems() / planes, out = run.outputs[0].elems() / planes, area = most / planes;
    // Writes the elements from `begin` on that fall in [first, last).
    const auto put = [&](std::int64_t begin, std::int64_t end, std::int64_t first, std::int64_t last) {
      bool all = true;
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t index = indices[i];
        if (index < first || index >= last)
          all = false;
        else
          y[loops.rank() == 1 ? index : place(loops, index)] = values[i];
      }
      return all;
    };
    // MaxPool's indices stay in their plane.
    std::atomic<bool> at_home = true;
    run.pool->parallel_for(planes, std::max<std::int64_t>(1, elementwise_grain / out),
                           [&](std::int64_t begin, std::int64_t end, int) {
                             for (std::int64_t plane = begin; plane < end; ++plane) {
                               std::fill_n(y + plane * out, out, 0.0F);
                               if (!put(plane * in, (plane + 1) * in, plane * area, (plane + 1) * area))
                                 at_home = false;
                             }
                           });
    if (!at_home && !put(0, planes * in, 0, most))
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("an index is outside the {} elements that are unpooled", most));
  };
  return bound(run_on);
}

std::unique_ptr<const BoundKernel> bind_cuda(const Binding& binding) {
  return bound([loops = corner(binding)](const KernelRun& run) {
    if constexpr (cuda_built)
      cuda::max_unpool(*run.cuda, loops, run.inputs[0].elems(), run.in<float>(0), run.in<std::int64_t>(1),
                       run.outputs[0].elems(), run.out<float>());
  });
}

std::optional<std::string> refuse_cuda(const Problem& problem) {
  if (problem.shape(0).elems() > std::numeric_limits<std::int32_t>::max()) return "32-bit numbers of elements";
  return std::nullopt;
}

constexpr auto kernels =
    on_both({.types = dtypes<Types<float>>, .reads = input_bit(0) | input_bit(1)}, bind_cpu, bind_cuda, refuse_cuda);

}  // namespace

OpParts max_unpool() { return {make_from<MaxUnpoolOp>, kernels}; }

}  // namespace lenslet
