// gemm_cute on Hopper: TMA fills shared memory, wgmma multiplies out of it, and warps have trades. Read
// gemm_cute_mma.cu first, where layouts, tiles and partitions are explained.
//
// The floor. A multiprocessor's tensor cores do 4096 multiply-adds of 16 bit a cycle, so a step of a 128x256 tile, 64
// elements of k, takes 128 * 256 * 64 / 2048 / 2 = 512 cycles, in which the step's (128 + 256) * 64 * 2 bytes = 48 KiB
// must come: 96 bytes a cycle and multiprocessor, nearly all out of L2, and shared memory is read at (64 + 256) * 128
// bytes for each of the two warpgroups, 160 bytes a cycle of the 128 that it has ... times two reads of B. A tile of
// 128x128 wants 128 bytes a cycle out of L2, which is why the large tile is there: it is the one that reaches the
// floor.
//
// The pipeline. Shared memory holds a ring of `stages` steps. Two mbarriers belong to a stage: `full` (its bytes have
// come; TMA itself counts them) and `empty` (all warps that multiply have read it).
//   producer, 1 thread:      wait empty[s] -> expect bytes on full[s] -> start two copies -> next stage
//   consumers, 2 warpgroups: wait full[s]  -> start wgmma on s, wait for those of s - 1 -> arrive at empty[s - 1]
// Nobody else waits: the producer runs up to `stages` steps ahead, over the end of a tile, so that while the consumers
// write one tile out the next one's operands come in. A block is persistent: there are as many as multiprocessors, and
// each makes every gridDim.x-th tile.
//
// Registers. A tile of 128x256 is 256 threads * 128 sums, more than the 168 registers that 384 threads may have leave
// room for; so the producer's warpgroup, which needs few, gives its registers back (setmaxnreg), and the consumers take
// them: 128 * 40 + 256 * 232 <= 65536.

#include <cuda.h>

#include <cutlass/arch/barrier.h>
#include <cutlass/arch/reg_reconfig.h>
#include <algorithm>
#include <cute/tensor.hpp>

#include "base/cuda/launch.h"
#include "lenslet/error.h"
#include "ops/gemm/cute/epilogue.cuh"

namespace lenslet::cuda {
namespace {

using cute::_, cute::_1, cute::_2, cute::_3, cute::Int, cute::Shape;
using Full = cutlass::arch::ClusterTransactionBarrier;
using Empty = cutlass::arch::ClusterBarrier;
namespace GMMA = cute::GMMA;

constexpr int warpgroup = 128, consumers = 2, threads = (1 + consumers) * warpgroup;
constexpr int consumer_warps = consumers * warpgroup / 32;

/// Everything that is known when it is compiled. `B_major`: MN where B lies as [k,n].
template <typename T, int tile_n_, GMMA::Major B_major>
struct Cut {
  using Element = T;
  static constexpr int tile_m = 128, tile_n = tile_n_, tile_k = 64, stages = tile_n == 256 ? 4 : 6;
  static constexpr bool b_transposed = B_major == GMMA::Major::K;

  // What lies in a stage is made of blocks of 8 rows of 128 bytes, in which the 16-byte units of row r stand at
  // (unit ^ r): so eight rows of one unit lie in different banks. wgmma reads such blocks, and TMA writes them
  // (CU_TENSOR_MAP_SWIZZLE_128B): of an operand whose k is contiguous a row is 64 elements of k, and the blocks of a
  // tile are stacked: one copy of a box of 64 x rows writes them all. Of B as [k,n] a row is 64 elements of n, blocks
  // of 8 k are stacked to 64 k, which is a box, and such boxes lie beside each other.
  using LayoutA =
      decltype(cute::tile_to_shape(GMMA::Layout_K_SW128_Atom<T>{}, Shape<Int<tile_m>, Int<tile_k>, Int<stages>>{}));
  using LayoutB = std::conditional_t<
      b_transposed,
      decltype(cute::tile_to_shape(GMMA::Layout_K_SW128_Atom<T>{}, Shape<Int<tile_n>, Int<tile_k>, Int<stages>>{})),
      decltype(cute::tile_to_shape(GMMA::Layout_MN_SW128_Atom<T>{}, Shape<Int<tile_n>, Int<tile_k>, Int<stages>>{},
                                   cute::Step<_2, _1, _3>{}))>;
  static constexpr int box_n = b_transposed ? tile_n : 64;  ///< columns of B in one copy

  // wgmma of 64 x tile_n x 16: a warpgroup has 64 rows of the tile, two of them all.
  using Mma = decltype(cute::make_tiled_mma(
      GMMA::ss_op_selector<T, T, float, Shape<Int<tile_m>, Int<tile_n>, Int<tile_k>>, GMMA::Major::K, B_major>(),
      cute::Layout<Shape<_2, _1, _1>>{}));
};

// Sums go to y by way of shared memory, so that a warp writes whole rows of 32 columns, and the epilogue's code is in a
// loop over them: a warp's 16 rows x 32 columns at a time, rows 40 floats apart, which keeps both the pairs that wgmma
// leaves in a thread and the fours that it stores free of bank conflicts.
constexpr int chunk = 32, chunk_ld = chunk + 8, chunk_rows = 16;

template <typename C>
struct Shared {
  alignas(1024) cute::ArrayEngine<typename C::Element, cute::cosize_v<typename C::LayoutA>> a;
  alignas(1024) cute::ArrayEngine<typename C::Element, cute::cosize_v<typename C::LayoutB>> b;
  float sums[consumer_warps][chunk_rows * chunk_ld];
  std::uint64_t full[C::stages], empty[C::stages];
};

/// A stage of the ring, and how often the ring has been gone round, of which mbarriers want the parity.
template <int stages>
struct Turn {
  int stage = 0;
  std::uint32_t parity = 0;
  __device__ void operator++() {
    if (++stage < stages) return;
    stage = 0;
    parity ^= 1;
  }
};

/// Maps of A and B: three dimensions each, the matrix of the batch the last, so that a box is cut at the end of its own
/// matrix and filled up with zeros.
template <typename C>
__global__ void __launch_bounds__(threads, 1)
    wgmma_kernel(const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map, int a_moves,
                 int b_moves, CuteTiles tiles, CuteEpilogue epilogue) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) std::byte memory[];
  Shared<C>& shared = *reinterpret_cast<Shared<C>*>(memory);
  const int thread = static_cast<int>(threadIdx.x), group = cutlass::canonical_warp_group_idx();
  if (thread == 0) {
    cute::prefetch_tma_descriptor(&a_map);
    cute::prefetch_tma_descriptor(&b_map);
    for (int s = 0; s < C::stages; ++s) {
      Full::init(&shared.full[s], 1);
      Empty::init(&shared.empty[s], consumer_warps);
    }
    cutlass::arch::fence_barrier_init();  // TMA sees them
  }
  __syncthreads();
  wait_for_previous();
  let_next_start();

  const cute::Tensor a_tiles = cute::make_tensor(cute::make_smem_ptr(shared.a.begin()), typename C::LayoutA{});
  const cute::Tensor b_tiles = cute::make_tensor(cute::make_smem_ptr(shared.b.begin()), typename C::LayoutB{});
  Turn<C::stages> turn;

  if (group == 0) {
    cutlass::arch::warpgroup_reg_dealloc<40>();
    if (thread != 0) return;
    constexpr unsigned stage_bytes = (C::tile_m + C::tile_n) * C::tile_k * sizeof(typename C::Element);
    constexpr auto hint = static_cast<std::uint64_t>(cute::TMA::CacheHintSm90::EVICT_NORMAL);
    for (unsigned index = blockIdx.x; index < tiles.count; index += gridDim.x) {
      const CuteTiles::Tile tile = tiles[index];
      for (int step = 0; step < tile.step_count; ++step, ++turn) {
        // The ring is empty at first: of a barrier that was just made, the phase before the first one counts as over.
        Empty::wait(&shared.empty[turn.stage], turn.parity ^ 1);
        std::uint64_t* const full = &shared.full[turn.stage];
        Full::arrive_and_expect_tx(full, stage_bytes);
        const int k = (tile.first_step + step) * C::tile_k;
        cute::SM90_TMA_LOAD_3D::copy(&a_map, full, hint, &a_tiles(0, 0, turn.stage), k, tile.m * C::tile_m,
                                     tile.product * a_moves);
        for (int n = 0; n < C::tile_n; n += C::box_n) {
          const int column = tile.n * C::tile_n + n;
          cute::SM90_TMA_LOAD_3D::copy(&b_map, full, hint, &b_tiles(n, 0, turn.stage), C::b_transposed ? k : column,
                                       C::b_transposed ? column : k, tile.product * b_moves);
        }
      }
    }
    return;
  }

  cutlass::arch::warpgroup_reg_alloc<232>();
  const int lane = thread % 32, warp = thread / 32 - warpgroup / 32;
  typename C::Mma mma;
  auto part = mma.get_slice(thread - warpgroup);
  // Of an operand that wgmma reads from shared memory the "fragment" is a descriptor: where it lies, and how.
  const cute::Tensor a = part.make_fragment_A(part.partition_A(a_tiles));  // (MMA, MMA_M, MMA_K, stage)
  const cute::Tensor b = part.make_fragment_B(part.partition_B(b_tiles));  // (MMA, MMA_N, MMA_K, stage)
  cute::Tensor sums = cute::partition_fragment_C(mma, Shape<Int<C::tile_m>, Int<C::tile_n>>{});
  const auto release = [&](int stage) {
    if (lane == 0) Empty::arrive(&shared.empty[stage]);
  };

  for (unsigned index = blockIdx.x; index < tiles.count; index += gridDim.x) {
    const CuteTiles::Tile tile = tiles[index];
    mma.accumulate_ = GMMA::ScaleOut::Zero;  // the first product of a tile overwrites what was in the sums
    int before = 0;
    for (int step = 0; step < tile.step_count; ++step, ++turn) {
      Full::wait(&shared.full[turn.stage], turn.parity);
      cute::warpgroup_fence_operand(sums);
      cute::warpgroup_arrive();
#pragma unroll
      for (int at = 0; at < cute::size<2>(a); ++at) {
        cute::gemm(mma, a(_, _, at, turn.stage), b(_, _, at, turn.stage), sums);
        mma.accumulate_ = GMMA::ScaleOut::One;
      }
      cute::warpgroup_commit_batch();
      cute::warpgroup_wait<1>();  // those of the step before are done, these go on
      cute::warpgroup_fence_operand(sums);
      if (step > 0) release(before);
      before = turn.stage;
    }
    cute::warpgroup_wait<0>();
    cute::warpgroup_fence_operand(sums);
    release(before);

    // Of 64 rows a warp has 16; a thread has, of each 8 columns, columns 2 * (lane % 4) and the next of rows lane / 4
    // and lane / 4 + 8, in this order.
    float* const own = shared.sums[warp];
    const std::int64_t matrix = std::int64_t{tile.product} * tiles.slices + tile.slice;
#pragma unroll
    for (int first = 0; first < C::tile_n; first += chunk) {
      __syncwarp();
#pragma unroll
      for (int eight = 0; eight < chunk / 8; ++eight)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int at = (first / 8 + eight) * 4 + half * 2;
          *reinterpret_cast<float2*>(own + (lane / 4 + half * 8) * chunk_ld + eight * 8 + lane % 4 * 2) = {
              sums(at), sums(at + 1)};
        }
      __syncwarp();
#pragma unroll 1
      for (int row = lane / 8; row < chunk_rows; row += 4)
        epilogue.store(*reinterpret_cast<const float4*>(own + row * chunk_ld + lane % 8 * 4), matrix,
                       tile.m * C::tile_m + warp * chunk_rows + row, tile.n * C::tile_n + first + lane % 8 * 4);
    }
  }
#endif
}

using Encode = decltype(&cuTensorMapEncodeTiled);

/// libcuda's, by way of the runtime: nothing links that library.
Encode encode_tiled() {
  static const Encode entry = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
    CUDA_CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result));
#else
    CUDA_CHECK(cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found, cudaEnableDefault, &result));
#endif
    if (result != cudaDriverEntryPointSuccess)
      throw Error(ErrorKind::device, "the driver has no cuTensorMapEncodeTiled: it is older than CUDA 12");
    return reinterpret_cast<Encode>(found);
  }();
  return entry;
}

/// `count` matrices of `rows` x `columns`, of which copies take boxes of 64 columns.
CUtensorMap map_of(const CuteOperand& operand, std::int64_t rows, std::int64_t columns, std::int64_t count,
                   int box_rows, Numerics::Multiply multiply) {
  const cuuint64_t element = 2, ld = static_cast<cuuint64_t>(operand.ld), step = static_cast<cuuint64_t>(operand.step);
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows),
                              step == 0 ? 1 : static_cast<cuuint64_t>(count)};
  const cuuint64_t strides[] = {ld * element, (step == 0 ? ld * sizes[1] : step) * element};
  const cuuint32_t box[] = {64, static_cast<cuuint32_t>(box_rows), 1}, every[] = {1, 1, 1};
  CUtensorMap map;
  const CUresult result = encode_tiled()(
      &map, multiply == Numerics::Multiply::fp16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
      3, const_cast<void*>(operand.data), sizes, strides, box, every, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    throw Error(ErrorKind::device, "cuTensorMapEncodeTiled failed (" + std::to_string(result) + ")");
  return map;
}

template <typename C>
void launch_wgmma(const Context& context, const CuteCall& call, const CutePlan& plan) {
  const CuteProblem& p = call.problem;
  const CUtensorMap a = map_of(call.a, p.m, p.k, p.batch, C::tile_m, p.multiply);
  const CUtensorMap b = C::b_transposed ? map_of(call.b, p.n, p.k, p.batch, C::box_n, p.multiply)
                                        : map_of(call.b, p.k, p.n, p.batch, C::tile_k, p.multiply);
  const CuteTiles tiles = cute_tiles(p, plan);
  const auto kernel = wgmma_kernel<C>;
  allow_shared_bytes(kernel, sizeof(Shared<C>));
  launch(context, kernel, dim3(std::min(tiles.count, static_cast<unsigned>(context.multiprocessors))), dim3(threads),
         sizeof(Shared<C>), a, b, call.a.step != 0, call.b.step != 0, tiles,
         plan.slices > 1 ? cute_slice_sums(call) : cute_epilogue(call));
}

template <typename T>
void launch_type(const Context& context, const CuteCall& call, const CutePlan& plan) {
  if (!call.problem.b_transposed)
    launch_wgmma<Cut<T, 128, GMMA::Major::MN>>(context, call, plan);
  else if (plan.tile_n == 256)
    launch_wgmma<Cut<T, 256, GMMA::Major::K>>(context, call, plan);
  else
    launch_wgmma<Cut<T, 128, GMMA::Major::K>>(context, call, plan);
}

}  // namespace

void gemm_cute_wgmma(const Context& context, const CuteCall& call, const CutePlan& plan) {
  if (call.problem.multiply == Numerics::Multiply::fp16)
    launch_type<cute::half_t>(context, call, plan);
  else
    launch_type<cute::bfloat16_t>(context, call, plan);
}

}  // namespace lenslet::cuda
