// Large filters in fp32 by FFTs of tiles (overlap-save), NHWC. Three launches a chunk of tiles: forward transform, a
// complex product a frequency, inverse transform with the epilogue. Shapes: fft_plan.h; refusals:
// fft.cpp.

#include <algorithm>

#include "ops/conv/cuda/fft_plan.h"
#include "ops/conv/cuda/fft_product.cuh"
#include "ops/conv/cuda/fft_tiles.cuh"

namespace lenslet::cuda {
namespace {

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
    input.x = run.x<float>();
    input.v = reinterpret_cast<float*>(run.workspace.data());
    float* const product = input.v + plan_.v_floats();
    output.product = product;
    output.bias = run.bias<float>();
    output.residual = run.residual<float>();
    output.y = run.y<float>();
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
      multiply(context, {input.v, run.filter<float>(), product, tiles, plan_.c, plan_.k, plan_.slots});
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

}  // namespace

std::unique_ptr<const BoundKernel> bind_fft(const ConvProblem& p, const FftPlan& plan) {
  return std::make_unique<BoundFft>(p, plan);
}

}  // namespace lenslet::cuda
