// CumSum and CumProd: running sums and products along one axis.

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/cuda_built.h"
#include "ops/core/checks.h"
#include "ops/core/grain.h"
#include "ops/core/kernel.h"
#include "ops/core/shape_args.h"
#include "ops/reduce/cum_sum_cuda.h"

namespace lenslet {

namespace {

class CumSum final : public Op {
 public:
  explicit CumSum(const NodeSpec& spec) {
    AttributeReader reader(spec);
    product_ = spec.name == "CumProd";
    exclusive_ = reader.flag("exclusive", false);
    reverse_ = reader.flag("reverse", false);
    reader.finish();
  }

  std::string_view type() const override { return product_ ? "CumProd" : "CumSum"; }
  AttributeList attributes() const override {
    return {{"exclusive", std::int64_t{exclusive_}}, {"reverse", std::int64_t{reverse_}}};
  }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& x = required_input(inputs, 0, "x");
    axis(inputs);
    return {x};
  }
  double flops(std::span<const InputInfo>, std::span<const TensorType> outputs) const override {
    return static_cast<double>(outputs[0].shape.elems());
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape& y) const override {
    return axes_kept_if(inputs.size(), y.rank(), [along = axis(inputs)](int a) { return a != along; });
  }

  CumSumShape shape(std::span<const InputInfo> inputs) const {
    const Shape& x = inputs[0].type.shape;
    const int along = axis(inputs);
    CumSumShape shape{.length = x[along], .exclusive = exclusive_, .reverse = reverse_, .product = product_};
    for (int i = 0; i < x.rank(); ++i)
      if (i != along) (i < along ? shape.outer : shape.inner) *= x[i];
    return shape;
  }

 private:
  static int axis(std::span<const InputInfo> inputs) {
    const AxisInts axis = required_axis_ints(inputs, 1, "axis");
    if (axis.size != 1)
      throw Error(ErrorKind::invalid_model, fmt::format("axis has {} elements, expected one", axis.size));
    return resolve_axis(axis[0], inputs[0].type.shape.rank());
  }

  bool exclusive_ = false, reverse_ = false, product_ = false;
};

template <typename T, bool product>
void sum_up(const CumSumShape& shape, const T* x, T* y, ThreadPool& pool) {
  // Adjacent lines together, so that memory is read in order.
  constexpr std::int64_t most_lanes = 64;
  const std::int64_t lanes = std::min(shape.inner, most_lanes), strips = (shape.inner + lanes - 1) / lanes;
  // `width` lines from element `first` on; a constant 1 keeps the sum in a register.
  const auto strip = [&](std::int64_t outer, std::int64_t first, auto width) {
    std::array<RunningSum<T>, most_lanes> sums;
    sums.fill(product ? 1 : 0);
    for (std::int64_t i = 0; i < shape.length; ++i) {
      const std::int64_t row = outer * shape.length + (shape.reverse ? shape.length - 1 - i : i);
      const std::int64_t at = row * shape.inner + first;
      for (std::int64_t j = 0; j < width; ++j) {
        auto& sum = sums[static_cast<std::size_t>(j)];
        const RunningSum<T> with = joined<product>(sum, static_cast<RunningSum<T>>(x[at + j]));
        y[at + j] = static_cast<T>(shape.exclusive ? sum : with);
        sum = with;
      }
    }
  };
  pool.parallel_for(shape.outer * strips, std::max<std::int64_t>(1, elementwise_grain / (shape.length * lanes)),
                    [&](std::int64_t begin, std::int64_t end, int) {
                      for (std::int64_t unit = begin; unit < end; ++unit) {
                        const std::int64_t first = unit % strips * lanes;
                        if (shape.inner == 1)
                          strip(unit, 0, std::integral_constant<std::int64_t, 1>());
                        else
                          strip(unit / strips, first, std::min(lanes, shape.inner - first));
                      }
                    });
}

std::unique_ptr<const BoundKernel> bind_cpu(const Binding& binding) {
  return bound([shape = binding.op<CumSum>().shape(binding.problem.inputs())](const KernelRun& run) {
    if (run.outputs[0].elems() == 0) return;
    dispatch(run.outputs[0].dtype(), CumSumTypes(), [&]<typename T>(std::type_identity<T>) {
      (shape.product ? sum_up<T, true> : sum_up<T, false>)(shape, run.in<T>(0), run.out<T>(), *run.pool);
    });
  });
}

std::unique_ptr<const BoundKernel> bind_cuda(const Binding& binding) {
  return bound([shape = binding.op<CumSum>().shape(binding.problem.inputs())](const KernelRun& run) {
    if constexpr (cuda_built)
      cuda::cum_sum(*run.cuda, run.outputs[0].dtype(), shape, run.inputs[0].data(), run.outputs[0].data());
  });
}

// Sums and products are kept in double and rounded once, by half an ulp of a value up to some 30 times the rms.
constexpr auto kernels =
    on_both({.types = dtypes<CumSumTypes>, .tolerance = 2e-6, .in_place = input_bit(0), .reads = input_bit(0)},
            bind_cpu, bind_cuda);

}  // namespace

OpParts cum_sum() { return {make_from<CumSum>, kernels}; }

}  // namespace lenslet
