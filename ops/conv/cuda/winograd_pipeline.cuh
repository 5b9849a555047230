#pragma once
// One launch of Winograd's pipeline (winograd_pipeline.h): blocks of batched_gemm() and of the transforms side by side.

#include "ops/conv/cuda/batched_gemm.cuh"
#include "ops/conv/cuda/winograd_pipeline.h"
#include "ops/conv/cuda/winograd_plan.h"
#include "ops/conv/cuda/winograd_transforms.cuh"

namespace lenslet::cuda {

struct WinogradStage {
  BatchedGemm gemm;
  WinogradInput input;
  WinogradOutput output;
  int row_tiles, column_tiles;  ///< of a matrix of the product
  PipelineCut cut;
};

/// Grid: cut.blocks(). A thread transforms one channel, so that the registers of the product's tile suffice.
template <int M, int R, typename Tile>
__global__ void __launch_bounds__(Tile::threads, Tile::shape.blocks)
    winograd_pipeline_kernel(const __grid_constant__ WinogradStage g) {
  wait_for_previous();
  const PipelineBlock block = pipeline_block(g.cut, blockIdx.x);
  if (block.kind == PipelineBlock::Kind::product) {
    extern __shared__ float4 shared[];
    const int row = block.index % g.row_tiles, rest = block.index / g.row_tiles;
    batched_gemm_block<Tile>(g.gemm, reinterpret_cast<float*>(shared), row, rest % g.column_tiles,
                             static_cast<unsigned>(rest / g.column_tiles));
    return;
  }
  const unsigned thread = static_cast<unsigned>(block.index) * Tile::threads + threadIdx.x;
  if (block.kind == PipelineBlock::Kind::input)
    winograd_input<M, 1, R>(g.input, thread);
  else
    winograd_output<M, 1, R>(g.output, thread);
}

template <int M, int R, GemmTile tile>
void launch_stage(const Context& context, const WinogradPlan& plan, WinogradStage stage) {
  using Tile = TileTraits<tile>;
  constexpr auto kernel = winograd_pipeline_kernel<M, R, Tile>;
  const auto blocks = [](std::int64_t items, int per_block) { return static_cast<int>(blocks_for(items, per_block)); };
  stage.row_tiles = blocks(stage.gemm.m, Tile::m);
  stage.column_tiles = blocks(stage.gemm.n, Tile::n);
  stage.cut = PipelineCut(stage.row_tiles * stage.column_tiles * stage.gemm.batches,
                          blocks(std::int64_t{stage.input.count} * plan.c, Tile::threads),
                          blocks(std::int64_t{stage.output.count} * stage.output.k, Tile::threads));
  allow_shared_bytes(kernel, Tile::shared_bytes);
  launch(context, kernel, static_cast<unsigned>(stage.cut.blocks()), Tile::threads, Tile::shared_bytes, stage);
}

}  // namespace lenslet::cuda
