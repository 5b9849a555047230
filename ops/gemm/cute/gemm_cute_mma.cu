// gemm_cute for Ampere and newer: cp.async fills shared memory, ldmatrix loads registers, mma.sync multiplies. Any
// sizes; fp16, bf16, tf32 and fp32. This file introduces CuTe's terms; gemm_cute_sm90.cuh is the same product for
// Hopper.
//
// Layout algebra. A Layout maps coordinates to an offset, by a shape and strides: (4,8):(8,1) maps (i,j) to 8 * i + j,
// a row-major 4x8 matrix. Modes nest: ((2,2),8):((1,16),2) is a layout, too. Layouts compose: the layout of data
// composed with one of (thread, value) -> coordinate gives each thread its values. A TiledCopy and a TiledMMA are such
// thread-value layouts over a tile; partition_S/D/A/B/C compose them. A Tensor is a pointer with a layout. The elements
// of an identity tensor are the coordinates themselves: partitioned like the data, it gives each thread the matrix
// position of its elements, for predicates. Swizzle<3,4,3> on byte offsets xors bits 4..6 with bits 7..9: in rows of
// 128 bytes the row number permutes the 16-byte units, so that the eight rows that ldmatrix reads at once lie in
// different banks.
//
// Roofline. On an H100 mma.sync reaches half of wgmma's rate at best. A k-block of a 128x128 tile loads 2 * 16 KiB from
// L2. The eight warps of 64x32 each then read (64 + 32) * 128 bytes of shared memory: 96 KiB for 1 MiB of 16-bit
// multiply-adds. That is 768 cycles at 128 bytes each; an A100's tensor cores need 1024.

#include <algorithm>
#include <cute/tensor.hpp>

#include "base/cuda/launch.h"
#include "ops/gemm/cute/epilogue.cuh"

namespace lenslet::cuda {
namespace {

using cute::_, cute::_1, cute::_2, cute::Int, cute::Shape, cute::Stride, cute::Layout;

/// The arithmetic of an element type: `Atom`, one instruction of a warp (or thread); `Tile`, the part of y that all
/// warps of a block compute with one Atom each, in `across` columns of warps; and the copies from shared memory to
/// registers.
template <typename T>
struct HalfArithmetic {
  using Element = T;
  using Atom = std::conditional_t<std::is_same_v<T, cute::half_t>, cute::SM80_16x8x16_F32F16F16F32_TN,
                                  cute::SM80_16x8x16_F32BF16BF16F32_TN>;
  // Two rows and `across` columns of warps. Each warp takes 16x16 at a time, the amount that ldmatrix loads.
  template <int across>
  using Mma = decltype(cute::make_tiled_mma(Atom{}, Layout<Shape<_2, Int<across>, _1>>{},
                                            cute::Tile<Int<32>, Int<16 * across>, Int<16>>{}));
  using FromShared = cute::Copy_Atom<cute::SM75_U32x4_LDSM_N, T>;
};

struct Tf32Arithmetic {
  using Element = cute::tfloat32_t;  // the bits of a float, until they are rounded in registers
  template <int across>
  using Mma = decltype(cute::make_tiled_mma(cute::SM80_16x8x8_F32TF32TF32F32_TN{}, Layout<Shape<_2, Int<across>, _1>>{},
                                            cute::Tile<Int<32>, Int<16 * across>, Int<8>>{}));
  // ldmatrix loads 8x8 elements of 16 bits, or 8x4 of 32.
  using FromShared = cute::Copy_Atom<cute::SM75_U32x4_LDSM_N, cute::tfloat32_t>;
};

struct Fp32Arithmetic {
  using Element = float;
  // One element of 16 x (4 * across) per thread at a time: fmaf.
  template <int across>
  using Mma =
      decltype(cute::make_tiled_mma(cute::UniversalFMA<float>{}, Layout<Shape<Int<16>, Int<4 * across>, _1>>{}));
  using FromShared = cute::Copy_Atom<cute::UniversalCopy<float>, float>;
};

/// `vector`: elements per copy to shared memory: 16 bytes, or 1.
template <typename Arithmetic_, int tile_m_, int tile_n_, int stages_, bool vectors_>
struct Tiling {
  using Arithmetic = Arithmetic_;
  using Element = typename Arithmetic::Element;
  static constexpr int tile_m = tile_m_, tile_n = tile_n_, stages = stages_;
  static constexpr bool vectors = vectors_;
  static constexpr int tile_k = 128 / sizeof(Element), vector = vectors ? 16 / static_cast<int>(sizeof(Element)) : 1;
  static constexpr int across = tile_n / 32;  // columns of warps: 32 columns of y each
  static constexpr int threads = 2 * across * 32;
  using Mma = typename Arithmetic::template Mma<across>;

  // Swizzled blocks of 8 rows of 128 bytes, stacked to a tile.
  static constexpr int unit_bits = sizeof(Element) == 2 ? 3 : 2;  // 16 bytes are 2^unit_bits elements
  using Block = decltype(cute::composition(cute::Swizzle<3, unit_bits, 3>{},
                                           Layout<Shape<Int<8>, Int<tile_k>>, Stride<Int<tile_k>, _1>>{}));
  using LayoutA = decltype(cute::tile_to_shape(Block{}, Shape<Int<tile_m>, Int<tile_k>, Int<stages>>{}));
  using LayoutB = decltype(cute::tile_to_shape(Block{}, Shape<Int<tile_n>, Int<tile_k>, Int<stages>>{}));

  // 8 threads copy a row of 128 bytes (8 elements at a time in the elementwise case).
  using CopyOperation =
      std::conditional_t<vectors, cute::SM80_CP_ASYNC_CACHEGLOBAL_ZFILL<cute::uint128_t>, cute::UniversalCopy<Element>>;
  using ToShared = decltype(cute::make_tiled_copy(cute::Copy_Atom<CopyOperation, Element>{},
                                                  Layout<Shape<Int<threads / 8>, Int<8>>, Stride<Int<8>, _1>>{},
                                                  Layout<Shape<_1, Int<vector>>>{}));
  // Layout of accumulators on their way to y: rows of floats, padded by 8 against bank conflicts.
  using AccLayout = Layout<Shape<Int<tile_m>, Int<tile_n>>, Stride<Int<tile_n + 8>, _1>>;

  static constexpr std::size_t operand_bytes = (tile_m + tile_n) * tile_k * sizeof(Element) * stages;
  static constexpr std::size_t shared_bytes = std::max(operand_bytes, cute::cosize_v<AccLayout> * sizeof(float));
};

/// Starts this thread's copies of a k-block; elements outside rows x k become zeros.
template <typename C, typename From, typename At, typename To>
__device__ inline void tma_load(const From& from, const At& at, To&& to, int rows, int k) {
  const typename C::ToShared copy;
#pragma unroll
  for (int i = 0; i < cute::size<1>(to); ++i)
#pragma unroll
    for (int j = 0; j < cute::size<2>(to); ++j) {
      // k is a multiple of the vector, so a vector is inside as a whole or not at all.
      const bool inside = cute::get<0>(at(0, i, j)) < rows && cute::get<1>(at(0, i, j)) < k;
      if constexpr (C::vectors)
        cute::copy(copy.with(inside), from(_, i, j), to(_, i, j));
      else
        to(0, i, j) = inside ? from(0, i, j) : typename C::Element(0);
    }
}

/// Operands as (rows, k) with two strides, for either layout. `a_step`: elements between matrices.
template <typename C>
__global__ void __launch_bounds__(C::threads)
    mma_kernel(const typename C::Element* a, std::int64_t a_ld, std::int64_t a_step, const typename C::Element* b,
               std::int64_t b_row, std::int64_t b_column, std::int64_t b_step, int k, CuteTiles tiles,
               CuteEpilogue epilogue) {
  wait_for_previous();
  let_next_start();
  extern __shared__ __align__(128) std::byte memory[];
  using Element = typename C::Element;
  const int thread = static_cast<int>(threadIdx.x);
  const CuteTiles::Tile tile = tiles[blockIdx.x];
  const int m = epilogue.m, n = epilogue.n;

  // The matrices and this block's tiles of them, one per k-block: (tile_m, tile_k, step). Predicates mask what lies
  // outside. For vector copies the compiler must know that k is contiguous.
  const auto rows_of = [](const Element* data, int rows, int columns, auto row, auto column) {
    return cute::make_tensor(cute::make_gmem_ptr(data), cute::make_shape(rows, columns),
                             cute::make_stride(row, column));
  };
  const auto unit = [](std::int64_t stride) {
    if constexpr (C::vectors)
      return _1{};
    else
      return stride;
  };
  const cute::Tensor a_all = rows_of(a + tile.product * a_step, m, k, a_ld, unit(1));
  const cute::Tensor b_all = rows_of(b + tile.product * b_step, n, k, b_column, unit(b_row));
  const auto tile_shape_a = Shape<Int<C::tile_m>, Int<C::tile_k>>{};
  const auto tile_shape_b = Shape<Int<C::tile_n>, Int<C::tile_k>>{};
  const cute::Tensor a_steps = cute::local_tile(a_all, tile_shape_a, cute::make_coord(tile.m, _));
  const cute::Tensor b_steps = cute::local_tile(b_all, tile_shape_b, cute::make_coord(tile.n, _));
  const cute::Tensor a_at =
      cute::local_tile(cute::make_identity_tensor(cute::shape(a_all)), tile_shape_a, cute::make_coord(tile.m, _));
  const cute::Tensor b_at =
      cute::local_tile(cute::make_identity_tensor(cute::shape(b_all)), tile_shape_b, cute::make_coord(tile.n, _));
  Element* const shared = reinterpret_cast<Element*>(memory);
  const cute::Tensor a_shared = cute::make_tensor(cute::make_smem_ptr(shared), typename C::LayoutA{});
  const cute::Tensor b_shared =
      cute::make_tensor(cute::make_smem_ptr(shared + cute::cosize_v<typename C::LayoutA>), typename C::LayoutB{});

  const auto copy = typename C::ToShared{}.get_slice(thread);
  const cute::Tensor a_from = copy.partition_S(a_steps), b_from = copy.partition_S(b_steps);  // (CPY, M, K, step)
  const cute::Tensor a_from_at = copy.partition_S(a_at), b_from_at = copy.partition_S(b_at);
  cute::Tensor a_to = copy.partition_D(a_shared), b_to = copy.partition_D(b_shared);  // (CPY, M, K, stage)
  const auto fetch = [&](int step, int stage) {
    if (step < tile.step_count) {
      const int at = tile.first_step + step;
      tma_load<C>(a_from(_, _, _, at), a_from_at(_, _, _, at), a_to(_, _, _, stage), m, k);
      tma_load<C>(b_from(_, _, _, at), b_from_at(_, _, _, at), b_to(_, _, _, stage), n, k);
    }
    cute::cp_async_fence();  // maybe empty, so that counting groups counts k-blocks
  };

  typename C::Mma mma;
  const auto part = mma.get_slice(thread);
  cute::Tensor a_frag = part.partition_fragment_A(a_shared(_, _, 0));  // (MMA, MMA_M, MMA_K)
  cute::Tensor b_frag = part.partition_fragment_B(b_shared(_, _, 0));  // (MMA, MMA_N, MMA_K)
  cute::Tensor acc = cute::partition_fragment_C(mma, Shape<Int<C::tile_m>, Int<C::tile_n>>{});
  cute::clear(acc);
  // The same elements in ldmatrix's order.
  const auto load_a = cute::make_tiled_copy_A(typename C::Arithmetic::FromShared{}, mma);
  const auto load_b = cute::make_tiled_copy_B(typename C::Arithmetic::FromShared{}, mma);
  const cute::Tensor a_load = load_a.get_slice(thread).partition_S(a_shared);
  const cute::Tensor b_load = load_b.get_slice(thread).partition_S(b_shared);
  cute::Tensor a_loaded = load_a.get_slice(thread).retile_D(a_frag);
  cute::Tensor b_loaded = load_b.get_slice(thread).retile_D(b_frag);

#pragma unroll
  for (int step = 0; step < C::stages - 1; ++step) fetch(step, step);
  for (int step = 0, stage = 0; step < tile.step_count; ++step) {
    cute::cp_async_wait<C::stages - 2>();  // all but the newest stages - 2 groups: this k-block has arrived
    __syncthreads();                       // for all threads; all have read the previous stage, which is filled next
    fetch(step + C::stages - 1, stage == 0 ? C::stages - 1 : stage - 1);
#pragma unroll
    for (int at = 0; at < cute::size<2>(a_frag); ++at) {
      cute::copy(load_a, a_load(_, _, at, stage), a_loaded(_, _, at));
      cute::copy(load_b, b_load(_, _, at, stage), b_loaded(_, _, at));
      if constexpr (std::is_same_v<Element, cute::tfloat32_t>) {
        const auto round = [](auto&& fragment) {
          cute::Tensor bits = cute::recast<std::uint32_t>(fragment);
#pragma unroll
          for (int i = 0; i < cute::size(bits); ++i) asm("cvt.rna.tf32.f32 %0, %0;" : "+r"(bits(i)));
        };
        round(a_frag(_, _, at));
        round(b_frag(_, _, at));
      }
      cute::gemm(mma, a_frag(_, _, at), b_frag(_, _, at), acc);
    }
    if (++stage == C::stages) stage = 0;
  }
  cute::cp_async_wait<0>();
  __syncthreads();

  // Accumulators go through shared memory, so that warps write whole rows and the epilogue is instantiated once.
  const cute::Tensor rows =
      cute::make_tensor(cute::make_smem_ptr(reinterpret_cast<float*>(memory)), typename C::AccLayout{});
  cute::copy(acc, part.partition_C(rows));
  __syncthreads();
  const std::int64_t matrix = std::int64_t{tile.product} * tiles.split_k + tile.split;
  constexpr int fours = C::tile_n / 4;
#pragma unroll 1
  for (int at = thread; at < C::tile_m * fours; at += C::threads) {
    const int i = at / fours, j = at % fours * 4;
    epilogue.store(*reinterpret_cast<const float4*>(&rows(i, j)), matrix, tile.m * C::tile_m + i,
                   tile.n * C::tile_n + j);
  }
}

template <typename C>
void launch_tiling(const Context& context, const CuteCall& call, const CutePlan& plan) {
  const CuteProblem& p = call.problem;
  const auto kernel = mma_kernel<C>;
  allow_shared_bytes(kernel, C::shared_bytes);
  const CuteTiles tiles = cute_tiles(p, plan);
  launch(context, kernel, dim3(tiles.count), dim3(C::threads), C::shared_bytes,
         static_cast<const typename C::Element*>(call.a.data), call.a.ld, call.a.step,
         static_cast<const typename C::Element*>(call.b.data), p.b_transposed ? 1 : call.b.ld,
         p.b_transposed ? call.b.ld : 1, call.b.step, p.k, tiles,
         plan.split_k > 1 ? cute_reduce_split_k(call) : cute_epilogue(call));
}

template <typename Arithmetic, Numerics::Multiply multiply, int tile, int stages, bool vectors>
void launch_if_compiled(const Context& context, const CuteCall& call, const CutePlan& plan) {
  if constexpr (cute_quick &&
                !cute_in_quick_build({.multiply = multiply, .aligned = vectors}, {.tile_m = tile, .tile_n = tile}))
    refuse_quick_build();
  else
    launch_tiling<Tiling<Arithmetic, tile, tile, stages, vectors>>(context, call, plan);
}

template <typename Arithmetic, Numerics::Multiply multiply>
void launch_type(const Context& context, const CuteCall& call, const CutePlan& plan) {
  if (!call.problem.aligned || !call.problem.b_transposed)
    launch_if_compiled<Arithmetic, multiply, 64, 2, false>(context, call, plan);
  else if (plan.tile_m == 64)
    launch_if_compiled<Arithmetic, multiply, 64, 4, true>(context, call, plan);
  else
    launch_if_compiled<Arithmetic, multiply, 128, 3, true>(context, call, plan);
}

}  // namespace

void gemm_cute_mma(const Context& context, const CuteCall& call, const CutePlan& plan) {
  using Multiply = Numerics::Multiply;
  switch (call.problem.multiply) {
    case Multiply::fp32:
      return launch_type<Fp32Arithmetic, Multiply::fp32>(context, call, plan);
    case Multiply::tf32:
      return launch_type<Tf32Arithmetic, Multiply::tf32>(context, call, plan);
    case Multiply::fp16:
      return launch_type<HalfArithmetic<cute::half_t>, Multiply::fp16>(context, call, plan);
    case Multiply::bf16:
      return launch_type<HalfArithmetic<cute::bfloat16_t>, Multiply::bf16>(context, call, plan);
  }
}

}  // namespace lenslet::cuda
