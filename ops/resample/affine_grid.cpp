// AffineGrid: the points of images [N,C,H,W] or [N,C,D,H,W] under an affine map each, for GridSample.

#include "ops/resample/affine_grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <vector>

#include "base/cuda_built.h"
#include "ops/core/checks.h"
#include "ops/core/grain.h"
#include "ops/core/kernel.h"
#include "ops/core/shape_args.h"
#include "ops/resample/grids_cuda.h"

namespace lenslet {

namespace {

class AffineGridOp final : public Op {
 public:
  explicit AffineGridOp(const NodeSpec& spec) {
    AttributeReader reader(spec);
    align_corners_ = reader.flag("align_corners", false);
    reader.finish();
  }

  std::string_view type() const override { return "AffineGrid"; }
  AttributeList attributes() const override { return {{"align_corners", std::int64_t{align_corners_}}}; }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& theta = required_input(inputs, 0, "theta");
    const AffineGridShape s = shape(inputs);
    require_shape("theta", theta.shape, Shape{s.n, s.axes, s.axes + 1});
    const Shape grid =
        s.axes == 2 ? Shape{s.n, s.size[1], s.size[2], 2} : Shape{s.n, s.size[0], s.size[1], s.size[2], 3};
    (void)grid.elems();
    return {{theta.dtype, grid}};
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape&) const override {
    return axes_kept(inputs.size(), {0});
  }

  AffineGridShape shape(std::span<const InputInfo> inputs) const {
    const AxisInts size = required_axis_ints(inputs, 1, "size");
    if (size.size != 4 && size.size != 5)
      throw Error(ErrorKind::invalid_model, fmt::format("size has {} elements, not 4 or 5", size.size));
    AffineGridShape s{.n = size[0], .axes = size.size - 2, .align_corners = align_corners_};
    for (int i = 0; i < s.axes; ++i) s.size[3 - s.axes + i] = size[2 + i];
    for (const std::int64_t length : {s.n, s.size[0], s.size[1], s.size[2]})
      if (length < 0) throw Error(ErrorKind::invalid_model, fmt::format("size has the element {}", length));
    return s;
  }

 private:
  bool align_corners_ = false;
};

/// affine_point() for a line along W, with the terms that are constant along it computed once.
template <int axes>
void affine_line(const float* theta, const std::array<double, 2>& outer, std::span<const double> columns, float* to) {
  std::array<std::array<double, axes + 1>, axes> terms;  // the constant, the factor of x, the products with y and z
  for (std::size_t row = 0; row < axes; ++row) {
    const float* const factors = theta + row * (axes + 1);
    terms[row] = {static_cast<double>(factors[axes]), static_cast<double>(factors[0])};
    for (std::size_t i = 1; i < axes; ++i) terms[row][i + 1] = static_cast<double>(factors[i]) * outer[i - 1];
  }
  for (std::size_t i = 0; i < columns.size(); ++i)
    for (std::size_t row = 0; row < axes; ++row) {
      double sum = terms[row][0] + terms[row][1] * columns[i];
      for (std::size_t k = 2; k <= axes; ++k) sum += terms[row][k];
      to[i * axes + row] = static_cast<float>(sum);
    }
}

std::unique_ptr<const BoundKernel> bind_cpu(const Binding& binding) {
  const AffineGridShape s = binding.op<AffineGridOp>().shape(binding.problem.inputs());
  std::vector<double> columns;
  for (std::int64_t i = 0; i < s.size[2]; ++i) columns.push_back(grid_position(i, s.size[2], s.align_corners));
  return bound([s, columns = std::move(columns)](const KernelRun& run) {
    if (columns.empty()) return;
    const std::int64_t lines = s.size[0] * s.size[1];
    run.pool->parallel_for(
        s.n * lines, std::max<std::int64_t>(1, elementwise_grain / 4 / s.size[2]),
        [&](std::int64_t begin, std::int64_t end, int) {
          for (std::int64_t i = begin; i < end; ++i) {
            const float* const theta = run.in<float>(0) + i / lines * s.axes * (s.axes + 1);
            const std::array<double, 2> outer{grid_position(i % s.size[1], s.size[1], s.align_corners),
                                              grid_position(i % lines / s.size[1], s.size[0], s.align_corners)};
            (s.axes == 2 ? affine_line<2> : affine_line<3>)(theta, outer, columns,
                                                            run.out<float>() + i * s.size[2] * s.axes);
          }
        });
  });
}

std::unique_ptr<const BoundKernel> bind_cuda(const Binding& binding) {
  return bound([s = binding.op<AffineGridOp>().shape(binding.problem.inputs())]([[maybe_unused]] const KernelRun& run) {
    if constexpr (cuda_built) cuda::affine_grid(*run.cuda, s, run.in<float>(0), run.out<float>());
  });
}

constexpr auto kernels =
    on_both({.types = dtypes<Types<float>>, .tolerance = 0x1p-22, .reads = input_bit(0)}, bind_cpu, bind_cuda);

}  // namespace

OpParts affine_grid() { return {make_from<AffineGridOp>, kernels}; }

}  // namespace lenslet
