// Winograd F(2x2,3x3), F(4x4,3x3), F(2x2,5x5), F(4x4,5x5) and F(2x2,7x7) in NHWC, three launches a chunk of tiles:
// input transform, alpha^2 GEMMs, output transform with epilogue. Shapes: winograd_plan.h; matrices:
// ops/conv/winograd_matrices.h; refusals and filters: winograd.cpp.

#include <algorithm>

#include "ops/conv/cuda/gemm_tile.cuh"
#include "ops/conv/cuda/winograd_plan.h"
#include "ops/conv/cuda/winograd_transforms.cuh"

namespace lenslet::cuda {
namespace {

template <int M, int R>
class BoundWinograd final : public BoundConv {
 public:
  BoundWinograd(const ConvProblem& p, const WinogradPlan& plan)
      : BoundConv(p, (plan.v_floats() + plan.product_floats()) * sizeof(float)), plan_(plan), input_(p), output_(p) {
    input_.down = output_.down = plan.down;
    input_.across = output_.across = plan.across;
    input_.v_row = plan.c;
    output_.product_row = plan.k;
  }

 private:
  void compute(const ConvRun& run) const override {
    constexpr int width = winograd_width(M, R);
    const Context& context = *run.cuda;
    WinogradInput input = input_;
    WinogradOutput output = output_;
    input.x = run.x<float>();
    input.v = reinterpret_cast<float*>(run.workspace.data());
    float* const product = input.v + plan_.v_floats();
    output.product = product;
    output.bias = run.bias<float>();
    output.residual = run.residual<float>();
    output.y = run.y<float>();
    output.y_pixel = static_cast<int>(run.y_pixel);
    const auto launch_transform = [&](auto kernel, std::int64_t floats, const auto& arguments) {
      launch(context, kernel, blocks_for(floats, winograd_threads), winograd_threads, 0, arguments);
    };
    for (int first = 0; first < plan_.count; first += plan_.chunk) {
      const int tiles = std::min(plan_.chunk, plan_.count - first);
      input.first = output.first = first;
      input.count = output.count = tiles;
      const std::int64_t v_floats = std::int64_t{tiles} * plan_.c, y_floats = tiles * problem.k;
      if (plan_.wide_input)
        launch_transform(winograd_input_kernel<M, width, R>, v_floats / width, input);
      else
        launch_transform(winograd_input_kernel<M, 1, R>, v_floats, input);
      BatchedGemm gemm = plan_.gemm(tiles);
      gemm.a = input.v;
      gemm.b = run.filter<float>();
      gemm.product = product;
      batched_gemm(context, gemm, plan_.tile);
      if (plan_.wide_output)
        launch_transform(winograd_output_kernel<M, width, R>, y_floats / width, output);
      else
        launch_transform(winograd_output_kernel<M, 1, R>, y_floats, output);
    }
  }

  WinogradPlan plan_;
  WinogradInput input_;
  WinogradOutput output_;
};

}  // namespace

std::unique_ptr<const BoundKernel> bind_winograd(const ConvProblem& p, const WinogradPlan& plan) {
  if (plan.r == 7) return std::make_unique<BoundWinograd<2, 7>>(p, plan);
  if (plan.r == 5 && plan.m == 4) return std::make_unique<BoundWinograd<4, 5>>(p, plan);
  if (plan.r == 5) return std::make_unique<BoundWinograd<2, 5>>(p, plan);
  if (plan.m == 4) return std::make_unique<BoundWinograd<4, 3>>(p, plan);
  return std::make_unique<BoundWinograd<2, 3>>(p, plan);
}

}  // namespace lenslet::cuda
