// Det: the determinant of each square matrix in the last two axes.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/cuda_built.h"
#include "ops/core/checks.h"
#include "ops/core/grain.h"
#include "ops/core/kernel.h"
#include "ops/reduce/det_cuda.h"

namespace lenslet {

namespace {

class Det final : public Op {
 public:
  std::string_view type() const override { return "Det"; }
  AttributeList attributes() const override { return {}; }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& x = required_input(inputs, 0, "X");
    require_rank("input X", x.shape, 2, Shape::max_rank);
    const auto dims = x.shape.dims();
    if (dims[dims.size() - 2] != dims.back())
      throw Error(ErrorKind::invalid_model,
                  fmt::format("input X has shape {}: its matrices are not square", x.shape.str()));
    return {{x.dtype, Shape(std::vector<std::int64_t>(dims.begin(), dims.end() - 2))}};
  }
  double flops(std::span<const InputInfo> inputs, std::span<const TensorType>) const override {
    const Shape& x = inputs[0].type.shape;
    return 2.0 / 3 * static_cast<double>(x.elems()) * static_cast<double>(x[x.rank() - 1]);
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape& y) const override {
    return axes_kept_if(inputs.size(), y.rank(), [](int) { return true; });
  }
};

/// By elimination with the largest pivot of each column; `a` [n,n] is overwritten.
double determinant(double* a, std::int64_t n) {
  double value = 1;
  for (std::int64_t k = 0; k < n; ++k) {
    double* const top = a + k * n;
    double* best = top;
    for (double* row = top + n; row < a + n * n; row += n)
      if (std::abs(row[k]) > std::abs(best[k])) best = row;
    if (best[k] == 0) return 0;
    if (best != top) {
      std::swap_ranges(top + k, top + n, best + k);
      value = -value;
    }
    value *= top[k];
    for (double* row = top + n; row < a + n * n; row += n) {
      const double factor = row[k] / top[k];
      for (std::int64_t j = k + 1; j < n; ++j) row[j] -= factor * top[j];
    }
  }
  return value;
}

std::unique_ptr<const BoundKernel> bind_cpu(const Binding& binding) {
  const Shape& x = binding.shape(0);
  const std::int64_t n = x[x.rank() - 1], size = n * n;
  const auto bytes = static_cast<std::size_t>(binding.threads()) * static_cast<std::size_t>(size) * sizeof(double);
  return bound(
      [n, size](const KernelRun& run) {
        const float* const in = run.in<float>(0);
        float* const y = run.out<float>();
        auto* const scratch = reinterpret_cast<double*>(run.workspace.data());
        run.pool->parallel_for(run.outputs[0].elems(), std::max<std::int64_t>(1, elementwise_grain / (size * n + 1)),
                               [&](std::int64_t begin, std::int64_t end, int worker) {
                                 double* const a = scratch + worker * size;
                                 for (std::int64_t i = begin; i < end; ++i) {
                                   double not_finite = 0;  // NaN where an element is NaN or infinite
                                   for (std::int64_t k = 0; k < size; ++k) {
                                     a[k] = in[i * size + k];
                                     not_finite += 0 * a[k];
                                   }
                                   y[i] = static_cast<float>(determinant(a, n) + not_finite);
                                 }
                               });
      },
      bytes);
}

std::unique_ptr<const BoundKernel> bind_cuda(const Binding& binding) {
  const Shape& x = binding.shape(0);
  return bound(
      [n = x[x.rank() - 1]](const KernelRun& run) {
        if constexpr (cuda_built)
          cuda::det(*run.cuda, run.in<float>(0), run.out<float>(), reinterpret_cast<double*>(run.workspace.data()),
                    run.outputs[0].elems(), n);
      },
      static_cast<std::size_t>(x.elems()) * sizeof(double));
}

std::optional<std::string> refuse_cuda(const Problem& problem) {
  if (problem.output_shape().elems() < std::int64_t{1} << 31) return {};
  return "2^31 matrices or more";
}

// Computed in double and rounded once, by 2^-24; the oracle's scale contains the error in double.
constexpr auto kernels =
    on_both({.types = dtypes<Types<float>>, .tolerance = 6.1e-8}, bind_cpu, bind_cuda, refuse_cuda);

}  // namespace

OpParts det() { return {make_plain<Det>, kernels}; }

}  // namespace lenslet
