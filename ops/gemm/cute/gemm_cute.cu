// What the kernels of gemm_cute are launched with.

#include "ops/gemm/cute/gemm_cute.h"

#include <cstdint>

#include "ops/gemm/cute/tiles.h"

namespace lenslet::cuda {
namespace {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

bool lies_on(const void* data, std::size_t bytes) { return reinterpret_cast<std::uintptr_t>(data) % bytes == 0; }

}  // namespace

CuteTiles cute_tiles(const CuteProblem& p, const CutePlan& plan) {
  CuteTiles tiles;
  tiles.tiles_m = static_cast<int>(ceil_div(p.m, plan.tile_m));
  tiles.tiles_n = static_cast<int>(ceil_div(p.n, plan.tile_n));
  tiles.slices = static_cast<int>(plan.slices);
  tiles.steps = static_cast<int>(ceil_div(p.k, cute_tile_k(p.element_bytes())));
  tiles.steps_a_slice = static_cast<int>(ceil_div(tiles.steps, plan.slices));
  tiles.count = static_cast<unsigned>(std::int64_t{tiles.tiles_m} * tiles.tiles_n * plan.slices * p.batch);
  return tiles;
}

CuteEpilogue cute_epilogue(const CuteCall& call) {
  const CuteProblem& p = call.problem;
  const std::size_t four = p.y_type == DType::f32 ? 16 : 8;
  return {.type = p.y_type == DType::f32   ? CuteEpilogue::Type::f32
                  : p.y_type == DType::f16 ? CuteEpilogue::Type::f16
                                           : CuteEpilogue::Type::bf16,
          .alpha = call.alpha,
          .beta = call.beta,
          .c = call.c,
          .c_row = call.c_row,
          .c_col = call.c_col,
          .residual = call.residual,
          .activation = DeviceActivation(call.activation),
          .y = call.y,
          .m = static_cast<int>(p.m),
          .n = static_cast<int>(p.n),
          .vectors = p.n % 4 == 0 && lies_on(call.y, four) && lies_on(call.residual, four)};
}

CuteEpilogue cute_slice_sums(const CuteCall& call) {
  const CuteProblem& p = call.problem;
  CuteEpilogue plain;
  plain.y = call.workspace;
  plain.m = static_cast<int>(p.m);
  plain.n = static_cast<int>(p.n);
  plain.vectors = p.n % 4 == 0;
  return plain;
}

bool cute_built() { return true; }

void gemm_cute(const Context& context, const CuteCall& call, const CutePlan& plan) {
  (plan.core == CutePlan::Core::wgmma ? gemm_cute_wgmma : gemm_cute_mma)(context, call, plan);
  if (plan.slices > 1) gemm_cute_add_slices(context, call, plan.slices);
}

}  // namespace lenslet::cuda
