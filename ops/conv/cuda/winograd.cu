// Winograd F(2x2,3x3), F(4x4,3x3), F(2x2,5x5), F(4x4,5x5) and F(2x2,7x7) in NHWC, three launches a chunk of tiles:
// input transform, alpha^2 GEMMs, output transform with epilogue. Shapes: winograd_plan.h; matrices:
// ops/conv/winograd_matrices.h.

#include <algorithm>

#include "ops/conv/cuda/gemm_tile.cuh"
#include "ops/conv/cuda/winograd_plan.h"
#include "ops/conv/cuda/winograd_transforms.cuh"
#include "ops/conv/winograd_filter.h"

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
    input.x = run.x;
    input.v = reinterpret_cast<float*>(run.workspace.data());
    float* const product = input.v + plan_.v_floats();
    output.product = product;
    output.bias = run.bias;
    output.residual = run.residual;
    output.y = run.y;
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
      gemm.b = run.filter;
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

template <int M, int R>
class Winograd final : public ConvAlgorithm {
 public:
  std::string_view name() const override {
    if (R == 3) return M == 2 ? "winograd_f2" : "winograd_f4";
    if (R == 5) return M == 2 ? "winograd_f2_5x5" : "winograd_f4_5x5";
    return "winograd_f2_7x7";
  }
  DeviceKind device() const override { return DeviceKind::cuda; }

 private:
  std::optional<std::string> refuse(const ConvProblem& p, const Target& target) const override {
    if (auto reason = refuse_winograd(p, M, R)) return reason;
    return target.device.refuse_shared(LargestTile::shared_bytes);
  }

  Plan plan(const ConvProblem& p, const Target& target) const override {
    const WinogradPlan winograd = plan_winograd(p, M, target.device);
    return {.pitched = true,
            .config = winograd.str(),
            .estimated_us = estimate_winograd_us(p, winograd, target.device),
            .tolerance = winograd_tolerance(M, R, p.c)};
  }

  FilterForm filter_form(const ConvProblem& p, std::string_view config) const override {
    return {.floats = static_cast<std::int64_t>(read_winograd_plan(p, M, config).u_floats())};
  }
  /// U = G g G^T in double, rounded once.
  void transform(const ConvProblem& p, std::string_view config, const ConvFilter& filter,
                 std::span<float> u) const override {
    const WinogradPlan plan = read_winograd_plan(p, M, config);
    constexpr std::size_t alpha = M + R - 1;
    std::fill(u.begin(), u.end(), 0.0F);
    for (std::int64_t c = 0; c < p.c; ++c)
      for (std::int64_t k = 0; k < p.k; ++k) {
        float* to = u.data() + c * plan.k + k;
        for (std::size_t i = 0; i < alpha; ++i) {
          const auto line = winograd_filter_row<M, R>(i, filter.w + (k * p.c + c) * R * R);
          for (std::size_t j = 0; j < alpha; ++j, to += std::int64_t{plan.c} * plan.k)
            *to = static_cast<float>(filter.factor(k) * winograd_filter_element<M>(j, line));
        }
      }
  }

  std::unique_ptr<const BoundKernel> bind_conv(const ConvProblem& p, std::string_view config,
                                               const DeviceProfile&) const override {
    return std::make_unique<BoundWinograd<M, R>>(p, read_winograd_plan(p, M, config));
  }
};

}  // namespace

const Kernel& conv_winograd_f2() {
  static const Winograd<2, 3> algorithm;
  return algorithm;
}
const Kernel& conv_winograd_f4() {
  static const Winograd<4, 3> algorithm;
  return algorithm;
}
const Kernel& conv_winograd_f2_5x5() {
  static const Winograd<2, 5> algorithm;
  return algorithm;
}
const Kernel& conv_winograd_f4_5x5() {
  static const Winograd<4, 5> algorithm;
  return algorithm;
}
const Kernel& conv_winograd_f2_7x7() {
  static const Winograd<2, 7> algorithm;
  return algorithm;
}

}  // namespace lenslet::cuda
