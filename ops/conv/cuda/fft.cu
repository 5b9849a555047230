// Large filters in fp32 by FFTs of tiles (overlap-save), NHWC. Three launches a chunk of tiles: forward transform, a
// complex product a frequency, inverse transform with the epilogue. Shapes: fft_plan.h.

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>

#include "ops/conv/cuda/fft_plan.h"
#include "ops/conv/cuda/fft_product.cuh"
#include "ops/conv/cuda/fft_tiles.cuh"

namespace lenslet::cuda {
namespace {

/// f(0) .. f(Count - 1), each index a constant.
template <std::size_t Count, typename F>
void with_index(const F& f) {
  [&]<std::size_t... indices>(std::index_sequence<indices...>) {
    (f(std::integral_constant<std::size_t, indices>()), ...);
  }
  (std::make_index_sequence<Count>());
}

/// The largest shared memory of a block over all kernels.
std::size_t most_shared_bytes() {
  std::size_t most = 0;
  with_index<fft_sizes.size()>([&](auto i) { most = std::max(most, FftBlockFor<fft_sizes[i]>::shared_bytes); });
  with_index<fft_product_tiles.size()>(
      [&](auto i) { most = std::max(most, FftProductTraits<static_cast<FftProductTile>(i())>::shared_bytes); });
  return most;
}

class BoundFft final : public BoundConv {
 public:
  BoundFft(const ConvProblem& p, const FftPlan& plan)
      : BoundConv(p, (plan.v_floats() + plan.product_floats()) * sizeof(float)), plan_(plan), input_(p), output_(p) {
    input_.tiling = output_.tiling = {
        .down = plan.down, .across = plan.across, .rows_out = plan.rows_out, .columns_out = plan.columns_out};
    input_.v_row = plan.c;
    output_.product_row = plan.k;
  }

 private:
  void compute(const ConvRun& run) const override {
    with_index<fft_sizes.size()>([&](auto index) {
      if (fft_sizes[index] == plan_.size) compute_tiles<FftBlockFor<fft_sizes[index]>>(run);
    });
  }

  template <typename Block>
  void compute_tiles(const ConvRun& run) const {
    const Context& context = *run.cuda;
    FftInput input = input_;
    FftOutput output = output_;
    input.x = run.x;
    input.v = reinterpret_cast<float*>(run.workspace.data());
    float* const product = input.v + plan_.v_floats();
    output.product = product;
    output.bias = run.bias;
    output.residual = run.residual;
    output.y = run.y;
    output.y_pixel = static_cast<int>(run.y_pixel);
    const auto launch_transform = [&](auto kernel, std::int64_t channels, const auto& arguments) {
      allow_shared_bytes(kernel, Block::shared_bytes);
      launch(context, kernel, blocks_for(channels, Block::lanes), Block::threads, Block::shared_bytes, arguments);
    };
    for (int first = 0; first < plan_.count; first += plan_.chunk) {
      const int tiles = std::min(plan_.chunk, plan_.count - first);
      input.tiling.first = output.tiling.first = first;
      input.tiling.count = output.tiling.count = tiles;
      launch_transform(fft_input_kernel<Block>, std::int64_t{tiles} * plan_.c, input);
      multiply(context, {input.v, run.filter, product, tiles, plan_.c, plan_.k, plan_.slots});
      launch_transform(fft_output_kernel<Block>, tiles * problem.k, output);
    }
  }

  void multiply(const Context& context, const FftProduct& product) const {
    with_index<fft_product_tiles.size()>([&](auto index) {
      constexpr auto tile = static_cast<FftProductTile>(index());
      if (tile != plan_.tile) return;
      using Tile = FftProductTraits<tile>;
      constexpr auto kernel = fft_product_kernel<Tile>;
      allow_shared_bytes(kernel, Tile::shared_bytes);
      const dim3 grid(blocks_for(product.tiles, Tile::m), blocks_for(product.k, Tile::n),
                      static_cast<unsigned>(product.slots));
      launch(context, kernel, grid, Tile::threads, Tile::shared_bytes, product);
    });
  }

  FftPlan plan_;
  FftInput input_;
  FftOutput output_;
};

class Fft final : public ConvAlgorithm {
 public:
  std::string_view name() const override { return "fft"; }
  DeviceKind device() const override { return DeviceKind::cuda; }

 private:
  std::optional<std::string> refuse(const ConvProblem& p, const Target& target) const override {
    if (auto reason = refuse_fft(p)) return reason;
    return target.device.refuse_shared(most_shared_bytes());
  }

  Plan plan(const ConvProblem& p, const Target& target) const override {
    const FftPlan fft = plan_fft(p, target.device);
    return {.pitched = true,
            .config = fft.str(),
            .estimated_us = estimate_fft_us(p, fft, target.device),
            .tolerance = fft_tolerance(p)};
  }

  FilterForm filter_form(const ConvProblem& p, std::string_view config) const override {
    const FftPlan plan = read_fft_plan(p, config);
    return {.floats = static_cast<std::int64_t>(plan.u_floats()), .form = std::to_string(plan.size)};
  }
  void transform(const ConvProblem& p, std::string_view config, const ConvFilter& filter,
                 std::span<float> u) const override {
    fft_filters(p, read_fft_plan(p, config), filter, u);
  }

  std::unique_ptr<const BoundKernel> bind_conv(const ConvProblem& p, std::string_view config,
                                               const DeviceProfile&) const override {
    return std::make_unique<BoundFft>(p, read_fft_plan(p, config));
  }
};

}  // namespace

const Kernel& conv_fft() {
  static const Fft algorithm;
  return algorithm;
}

}  // namespace lenslet::cuda
