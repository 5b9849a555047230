// Winograd F(2x2,3x3) and F(4x4,3x3) in NHWC, three launches a chunk of tiles: input transform, alpha^2 products,
// output transform with bias, residual and activation. Shapes: winograd_plan.h; matrices: ops/conv/winograd_matrices.h.

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/conv/cuda/algorithms.h"
#include "ops/conv/cuda/device_filter.h"
#include "ops/conv/cuda/winograd_plan.h"
#include "ops/conv/cuda/winograd_transforms.cuh"

namespace lenslet::cuda {
namespace {

/// Threads a multiprocessor from which on they take several channels each: fewer do not hide the latency of memory.
constexpr long long wide_threads = 512;

/// Launches narrow, or wide, of whose threads each takes `width` channels.
template <typename Kernel, typename Arguments>
void launch_transform(const Context& context, Kernel narrow, Kernel wide, int width, bool aligned, long long elems,
                      const Arguments& arguments) {
  const bool use_wide = aligned && elems / width >= wide_threads * context.multiprocessors;
  launch(context, use_wide ? wide : narrow, blocks_for(use_wide ? elems / width : elems, winograd_threads),
         winograd_threads, 0, arguments);
}

template <int M>
class Winograd final : public ConvAlgorithm {
 public:
  std::string_view name() const override { return M == 2 ? "winograd_f2" : "winograd_f4"; }
  Format format() const override { return formats::nhwc; }
  std::optional<std::string> refuse(const ConvProblem& p) const override { return refuse_winograd(p, M); }

  /// As on the CPU (ops/conv/cpu/winograd.cpp): the same points, and sums over C in one run.
  double tolerance(const ConvProblem& p) const override {
    const double c = std::sqrt(static_cast<double>(p.c));
    return M == 2 ? 8e-6 + 1.2e-6 * c : 1e-5 + 2e-6 * c;
  }

  double estimate_us(const ConvProblem& p, const MachineRates& rates) const override {
    return estimate_winograd_us(p, M, rates);
  }

  std::size_t workspace_bytes(const ConvProblem& p, int) const override {
    const WinogradPlan plan = plan_winograd(p, M);
    return (plan.v_floats() + plan.product_floats()) * sizeof(float);
  }

  std::unique_ptr<PreparedFilter> prepare(const ConvProblem& problem, const ConvFilter& filter) const override;
  void run(const ConvRun& run) const override;

 private:
  /// Channels of a thread of the wide kernels: 72 registers of input for F(4), 64 for F(2).
  static constexpr int width = M == 2 ? 4 : 2;
};

// U = G g G^T in double, rounded once.
template <int M>
std::unique_ptr<PreparedFilter> Winograd<M>::prepare(const ConvProblem& p, const ConvFilter& filter) const {
  constexpr std::size_t alpha = M + 2;
  constexpr const auto& g = winograd_matrices<M>.g;
  const WinogradPlan plan = plan_winograd(p, M);
  const auto row = static_cast<std::size_t>(plan.k), matrix = row * static_cast<std::size_t>(plan.c);
  const auto channels = static_cast<std::size_t>(p.c), filters = static_cast<std::size_t>(p.k);
  std::vector<float> u(plan.u_floats());
  for (std::size_t c = 0; c < channels; ++c)
    for (std::size_t k = 0; k < filters; ++k) {
      const float* w = filter.w + (k * channels + c) * 9;
      const double scale = filter.scale == nullptr ? 1.0 : static_cast<double>(filter.scale[k]);
      float* to = u.data() + c * row + k;
      for (std::size_t i = 0; i < alpha; ++i) {
        std::array<double, 3> line{};  // row i of G g
        for (std::size_t s = 0; s < 3; ++s)
          for (std::size_t r = 0; r < 3; ++r) line[s] += g[i][r] * static_cast<double>(w[r * 3 + s]);
        for (std::size_t j = 0; j < alpha; ++j, to += matrix)
          *to = static_cast<float>(scale * (line[0] * g[j][0] + line[1] * g[j][1] + line[2] * g[j][2]));
      }
    }
  return std::make_unique<DeviceFilter>(u);
}

template <int M>
void Winograd<M>::run(const ConvRun& run) const {
  const ConvProblem& p = run.problem;
  const Context& context = *run.cuda;
  const WinogradPlan plan = plan_winograd(p, M);
  auto* const v = reinterpret_cast<float*>(run.workspace.data());
  auto* const product = v + plan.v_floats();

  WinogradInput input{};
  input.x = run.x;
  input.v = v;
  input.down = plan.down;
  input.across = plan.across;
  input.h = static_cast<int>(p.h);
  input.w = static_cast<int>(p.w);
  input.c = static_cast<int>(p.c);
  input.v_row = plan.c;
  input.pad_top = static_cast<int>(p.pad_top);
  input.pad_left = static_cast<int>(p.pad_left);

  WinogradOutput output{};
  output.product = product;
  output.bias = run.bias;
  output.residual = run.residual;
  output.y = run.y;
  output.down = plan.down;
  output.across = plan.across;
  output.p = static_cast<int>(p.p);
  output.q = static_cast<int>(p.q);
  output.k = static_cast<int>(p.k);
  output.product_row = plan.k;
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const bool relu = p.activation.kind == Activation::Kind::relu, limits = p.activation.kind == Activation::Kind::clip;
  output.low = relu ? 0.0F : limits ? p.activation.alpha : -infinity;
  output.high = limits ? p.activation.beta : infinity;
  output.activate = !relu && !limits && p.activation.kind != Activation::Kind::none;
  output.activation = DeviceActivation(p.activation);

  for (int first = 0; first < plan.count; first += plan.chunk) {
    const int tiles = std::min(plan.chunk, plan.count - first);
    input.first = output.first = first;
    input.count = output.count = tiles;
    launch_transform(context, winograd_input_kernel<M, 1>, winograd_input_kernel<M, width>, width, p.c % width == 0,
                     static_cast<long long>(tiles) * plan.c, input);
    BatchedGemm gemm = plan.gemm(tiles);
    gemm.a = v;
    gemm.b = static_cast<const DeviceFilter&>(*run.filter).w.data();
    gemm.product = product;
    batched_gemm(context, gemm);
    launch_transform(context, winograd_output_kernel<M, 1>, winograd_output_kernel<M, width>, width, p.k % width == 0,
                     static_cast<long long>(tiles) * p.k, output);
  }
}

}  // namespace

const ConvAlgorithm& conv_winograd_f2() {
  static const Winograd<2> algorithm;
  return algorithm;
}
const ConvAlgorithm& conv_winograd_f4() {
  static const Winograd<4> algorithm;
  return algorithm;
}

}  // namespace lenslet::cuda
