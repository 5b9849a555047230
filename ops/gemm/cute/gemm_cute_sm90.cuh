#pragma once
// gemm_cute on Hopper: warp-specialised, TMA fills shared memory, wgmma multiplies from there. Read gemm_cute_mma.cu
// first, which explains layouts, tiles and partitions. The epilogue is in sm90_epilogue.cuh, the order of tiles and the
// layout of shared memory in tile_order.h.
//
// Roofline. An SM's tensor cores do 2048 16-bit multiply-adds per cycle (TF32: half as many, and a k-block of 128 bytes
// has half as many), so a k-block of a 128x256 tile takes 128 * 256 * 64 / 2048 = 1024 cycles. Three things must keep
// up:
//   shared memory  wgmma 64x256x16 reads (64 + 256) * 32 bytes in 128 cycles, and 48 KiB per k-block are written: 80 +
//                  48 = 128 bytes per cycle, the limit. 64x128x16 reads (64 + 128) * 32 in 64: 96 + 48 for a
//                  256x128 tile, 96 + 64 for 128x128, 128 + 96 for 64x64 per warpgroup, so these reach less.
//   L2             48 KiB per k-block are 48 bytes per cycle and SM: 11 TB/s for 132 SMs at 1.75 GHz. Without
//                  clusters 6.6 were reached at 8192 cubed. So two blocks with the same rows of B form a cluster: each
//                  loads half of them and multicasts it to both, which leaves 32 bytes per cycle.
//   memory         neighbouring blocks read the same operands: the tile order (CuteTiles) makes those that run at once
//                  a square.
//
// Pipeline. Shared memory is a ring of `stages` k-blocks. Each stage has two mbarriers: `full` (all bytes have arrived;
// TMA counts them) and `empty` (all consumer warps have read it, in a cluster those of both blocks, because a block's
// loads write to both).
//   producer, 1 thread:      wait empty[s] -> expect bytes on full[s] -> start copies -> next stage
//   consumers, 2 warpgroups: wait full[s]  -> start wgmma on s, wait for those of s - 1 -> arrive at empty[s - 1]
// The producer runs up to `stages` k-blocks ahead, across tile boundaries, so that the next tile's operands load during
// the epilogue. Only the ring couples the two warpgroups: one may be in its epilogue while the other multiplies. Blocks
// are persistent: one per SM, each computing every gridDim.x-th tile. Weights already on the device are loaded before
// the previous kernel has ended.
//
// Epilogue. When both warpgroups finish a tile at once, nothing is multiplied, so the epilogue must be short
// (sm90_epilogue.cuh). The addend c is in registers by then.
//
// Few tiles. Products too small for all SMs use split-K over a cluster of 2, 4 or 8 blocks: each block leaves its
// accumulators in shared memory, then adds all blocks' values for its part of the rows, in slice order (distributed
// shared memory). Small tiles of this kind serve few rows of A with a large B, bound by memory: an SM holds two such
// blocks, and one reads while the other begins or ends.
//
// Registers. A 128x256 tile needs 128 accumulators in each of 256 threads, too many for the 168 registers that 384
// threads may have. The producer's warpgroup gives registers to the consumers (setmaxnreg): 128 * 40 + 256 * 232 <=
// 65536.

#include <cuda.h>

#include <cutlass/arch/barrier.h>
#include <cutlass/arch/reg_reconfig.h>
#include <algorithm>
#include <cute/tensor.hpp>

#include "base/cuda/launch.h"
#include "ops/gemm/cute/epilogue.cuh"
#include "ops/gemm/cute/sm90_epilogue.cuh"

namespace lenslet::cuda {

/// Kernel arguments. Descriptors have three dimensions; the last is the matrix of the batch (for y: and slice), so that
/// boxes end with their own matrix and are zero-filled.
struct Sm90Call {
  CUtensorMap a{}, b{}, y{};
  int a_moves = 0, b_moves = 0;  ///< from one product to the next
  int b_known = 0;               ///< it was there before the network ran
  CuteTiles tiles;
  CuteEpilogue epilogue;
};

enum class Sm90Operand { fp16, bf16, tf32 };

/// A descriptor of `count` matrices of `rows` x `columns`, in boxes of `box_rows` rows of 128 bytes. The load rounds
/// float32 to nearest TF32. Error(device).
CUtensorMap sm90_operand_map(const CuteOperand& operand, std::int64_t rows, std::int64_t columns, std::int64_t count,
                             int box_rows, Sm90Operand type);
/// A descriptor for stores of y; a warp stores `columns` at a time.
CUtensorMap sm90_y_map(const CuteEpilogue& epilogue, std::int64_t count, int columns);

// One per operand type, each in its own source file.
void gemm_cute_wgmma_fp16(const Context& context, const CuteCall& call, const CutePlan& plan);
void gemm_cute_wgmma_bf16(const Context& context, const CuteCall& call, const CutePlan& plan);
void gemm_cute_wgmma_tf32(const Context& context, const CuteCall& call, const CutePlan& plan);

namespace {

using cute::_, cute::_1, cute::_2, cute::_3, cute::Int, cute::Shape;
using Full = cutlass::arch::ClusterTransactionBarrier;
using Empty = cutlass::arch::ClusterBarrier;
namespace GMMA = cute::GMMA;

constexpr int warpgroup = 128, threads = (1 + cute_consumers) * warpgroup;

/// Compile-time configuration. `B_major`: MN when B is [k,n]. `cluster`: blocks that share an operand. `joins`: split-K
/// over the cluster.
template <typename T, int tile_m_, int tile_n_, GMMA::Major B_major, int cluster_, bool joins_ = false>
struct Tiling {
  using Element = T;
  static constexpr int tile_m = tile_m_, tile_n = tile_n_, tile_k = 128 / sizeof(T), cluster = cluster_;
  static constexpr bool joins = joins_;
  static constexpr CuteShared layout = cute_shared(tile_m, tile_n, joins);
  static constexpr int stages = layout.stages;
  // The two warpgroups split the tile by rows, or with only 64 rows by columns.
  static constexpr bool beside = tile_m == 64;
  static constexpr int rows64 = beside ? 1 : tile_m / 64 / cute_consumers;   ///< blocks of 64 rows of a warpgroup
  static constexpr int group_n = beside ? tile_n / cute_consumers : tile_n;  ///< and its columns
  static constexpr bool b_transposed = B_major == GMMA::Major::K;
  static constexpr Sm90Operand operand = std::is_same_v<T, cute::half_t>       ? Sm90Operand::fp16
                                         : std::is_same_v<T, cute::bfloat16_t> ? Sm90Operand::bf16
                                                                               : Sm90Operand::tf32;

  // Each block of the cluster loads its part of A or B and multicasts it.
  static constexpr int sharing_a = cute_shares_a(tile_m, tile_n) ? cluster : 1, sharing_b = cluster / sharing_a;
  static constexpr int part_m = tile_m / sharing_a, part_n = tile_n / sharing_b;

  // A stage consists of blocks of 8 rows of 128 bytes; row r stores 16-byte unit u at (u ^ r), so that a unit of eight
  // rows lies in different banks. This is the layout that wgmma reads and TMA writes (CU_TENSOR_MAP_SWIZZLE_128B). With
  // contiguous k a row is 128 bytes of k and blocks are stacked: one box covers the tile's rows. With B as [k,n] a row
  // is 64 elements of n, blocks of 8 k are stacked to a box of 64 k, and boxes lie side by side.
  using LayoutA =
      decltype(cute::tile_to_shape(GMMA::Layout_K_SW128_Atom<T>{}, Shape<Int<tile_m>, Int<tile_k>, Int<stages>>{}));
  using LayoutB = std::conditional_t<
      b_transposed,
      decltype(cute::tile_to_shape(GMMA::Layout_K_SW128_Atom<T>{}, Shape<Int<tile_n>, Int<tile_k>, Int<stages>>{})),
      decltype(cute::tile_to_shape(GMMA::Layout_MN_SW128_Atom<T>{}, Shape<Int<tile_n>, Int<tile_k>, Int<stages>>{},
                                   cute::Step<_2, _1, _3>{}))>;
  static constexpr int box_n = b_transposed ? part_n : tile_k;  ///< columns of B in one copy
  static_assert(part_n % box_n == 0 && part_m % 8 == 0);

  // wgmma of 64 x group_n x 32 bytes. Per warpgroup: 64 rows of the tile, or of 256-row tiles 128 in two instructions.
  using Mma = decltype(cute::make_tiled_mma(
      GMMA::ss_op_selector<T, T, float, Shape<Int<tile_m>, Int<group_n>, Int<tile_k>>, GMMA::Major::K, B_major>(),
      std::conditional_t<beside, cute::Layout<Shape<_1, _2, _1>>, cute::Layout<Shape<_2, _1, _1>>>{}));
  /// The first row and column of a consumer warp within the tile.
  LENSLET_HOST_DEVICE static constexpr int first_row(int warp) { return (beside ? warp % 4 : warp) * cute_part_rows; }
  LENSLET_HOST_DEVICE static constexpr int first_column(int warp) { return beside ? warp / 4 * group_n : 0; }
};

/// Static checks of what epilogue and loads assume about the layouts. An identity tensor, partitioned like the
/// accumulators, gives their tile coordinates.
template <typename C>
constexpr bool acc_layout_is_as_expected() {
  constexpr int of_block = C::group_n / 2, each = C::rows64 * of_block;
  const auto all = cute::make_identity_tensor(Shape<Int<C::tile_m>, Int<C::tile_n>>{});
  for (const int thread : {0, 37, warpgroup + 97, 2 * warpgroup - 1}) {
    const auto own = typename C::Mma{}.get_slice(thread).partition_C(all);
    if (cute::size(own) != each) return false;
    const int warp = thread / 32, lane = thread % 32;
    for (const int sum : {0, 1, 2, 5, each / 2 + 3, each - 1}) {
      const int block = sum / of_block, at = sum % of_block;
      const int row = C::first_row(warp) + block * 128 + lane / 4 + at / 2 % 2 * 8;
      const int column = C::first_column(warp) + at / 4 * 8 + lane % 4 * 2 + at % 2;
      if (cute::get<0>(own(sum)) != row || cute::get<1>(own(sum)) != column) return false;
    }
  }
  return true;
}
/// Layout before the swizzle, which TMA applies by the same address bits.
template <typename C>
constexpr bool boxes_lie_as_expected() {
  const auto a = typename C::LayoutA{}.layout_b();
  const auto b = typename C::LayoutB{}.layout_b();
  constexpr int k = C::tile_k - 1, stage = C::stages - 1;
  for (const int row : {0, 7, 8, C::tile_m - 1})
    if (a(row, k, stage) != (stage * C::tile_m + row) * C::tile_k + k) return false;
  for (const int row : {0, 7, 8, C::tile_n - 1}) {
    const int in_stage = C::b_transposed ? row * C::tile_k + k : row / 64 * 64 * C::tile_k + k * 64 + row % 64;
    if (b(row, k, stage) != stage * C::tile_n * C::tile_k + in_stage) return false;
  }
  return true;
}

template <typename C>
struct Shared {
  alignas(1024) cute::ArrayEngine<typename C::Element, cute::cosize_v<typename C::LayoutA>> a;
  alignas(1024) cute::ArrayEngine<typename C::Element, cute::cosize_v<typename C::LayoutB>> b;
  alignas(1024) std::byte staging[std::max(cute_consumer_warps * C::layout.buffers * cute_part_bytes, 1)];
  std::uint64_t full[C::stages], empty[C::stages];

  __device__ auto a_tiles() { return cute::make_tensor(cute::make_smem_ptr(a.begin()), typename C::LayoutA{}); }
  __device__ auto b_tiles() { return cute::make_tensor(cute::make_smem_ptr(b.begin()), typename C::LayoutB{}); }
};

/// A stage of the ring and the number of rounds, whose parity mbarriers wait for.
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

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Barriers of all threads of a cluster; called by whole, possibly diverged warps.

/// Orders execution and barrier initialisation (fence_barrier_init), but not other memory accesses.
__device__ inline void meet_cluster() {
  __syncwarp();
  cute::cluster_arrive_relaxed();
  cute::cluster_wait();
}
/// Also makes earlier writes to shared memory visible, which takes longer.
__device__ inline void sync_cluster() {
  __syncwarp();
  asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/// The address in block `rank` of the cluster that corresponds to `mine`.
__device__ inline const float* in_block(int rank, const float* mine) {
  const float* theirs;
  asm("mapa.u64 %0, %1, %2;" : "=l"(theirs) : "l"(mine), "r"(rank));
  return theirs;
}

/// Initialises a block's barriers. Use them only after a barrier of the whole cluster.
template <typename C>
__device__ inline void begin(Shared<C>& shared, const Sm90Call& call) {
  if (threadIdx.x != 0) return;
  prefetch_map(call.a);
  prefetch_map(call.b);
  for (int s = 0; s < C::stages; ++s) {
    Full::init(&shared.full[s], 1);
    Empty::init(&shared.empty[s], cute_consumer_warps * C::cluster);
  }
  cutlass::arch::fence_barrier_init();  // TMA sees them
}

/// Loads one box, multicast to `blocks` blocks of the cluster at the same address.
template <int blocks>
__device__ inline void bring(const CUtensorMap& map, std::uint64_t* full, void* to, int x, int y, int z) {
  constexpr auto hint = static_cast<std::uint64_t>(cute::TMA::CacheHintSm90::EVICT_NORMAL);
  if constexpr (blocks == 1)
    cute::SM90_TMA_LOAD_3D::copy(&map, full, hint, to, x, y, z);
  else
    cute::SM90_TMA_LOAD_MULTICAST_3D::copy(&map, full, (1 << blocks) - 1, hint, to, x, y, z);
}

/// The producer thread: loads a block's k-blocks.
template <typename C>
class Producer {
 public:
  /// `rank`: of the block in its cluster.
  __device__ Producer(const Sm90Call& call, Shared<C>& shared, int rank)
      : call_(call),
        shared_(shared),
        a_first_(C::sharing_a > 1 ? rank * C::part_m : 0),
        b_first_(C::sharing_b > 1 ? rank * C::part_n : 0) {}

  /// Fills the ring with B of the first tile, at column j. Allowed before wait_for_previous() if B was on the device
  /// before the network ran.
  __device__ void begin(const CuteTiles::Tile& tile, int j) {
    early_ = tile.step_count < C::stages ? tile.step_count : C::stages;
    for (int step = 0; step < early_; ++step) load_b_tile(tile, j, step, step);
  }

  /// Loads all k-blocks of the tile at this row and column.
  __device__ void produce(const CuteTiles::Tile& tile, int i, int j) {
    for (int step = 0; step < tile.step_count; ++step, ++turn_) {
      if (early_ > 0) {
        --early_;
      } else {
        // The ring starts empty: the phase before a new barrier's first counts as complete.
        Empty::wait(&shared_.empty[turn_.stage], turn_.parity ^ 1);
        load_b_tile(tile, j, step, turn_.stage);
      }
      bring<C::sharing_a>(call_.a, &shared_.full[turn_.stage], &shared_.a_tiles()(a_first_, 0, turn_.stage),
                          first_k(tile, step), i + a_first_, tile.product * call_.a_moves);
    }
  }

 private:
  __device__ static int first_k(const CuteTiles::Tile& tile, int step) { return (tile.first_step + step) * C::tile_k; }

  __device__ void load_b_tile(const CuteTiles::Tile& tile, int j, int step, int stage) {
    std::uint64_t* const full = &shared_.full[stage];
    // Expects all bytes, A included, also those from the other block, which may arrive first: the count is then
    // negative for a while.
    Full::arrive_and_expect_tx(full, C::layout.stage);
    const int k = first_k(tile, step);
#pragma unroll
    for (int n = 0; n < C::part_n; n += C::box_n) {
      const int column = j + b_first_ + n;
      bring<C::sharing_b>(call_.b, full, &shared_.b_tiles()(b_first_ + n, 0, stage), C::b_transposed ? k : column,
                          C::b_transposed ? column : k, tile.product * call_.b_moves);
    }
  }

  const Sm90Call& call_;
  Shared<C>& shared_;
  int a_first_, b_first_;  ///< the first of the rows of a tile that this block brings
  Turn<C::stages> turn_;
  int early_ = 0;  ///< k-blocks whose B is already loading
};

/// A consumer warpgroup: accumulates a tile.
template <typename C, typename Acc>
__device__ __forceinline__ void multiply(Shared<C>& shared, int steps, Turn<C::stages>& turn, Acc& acc) {
  typename C::Mma mma;
  // Partitions by the warpgroup's first thread, so that the compiler knows descriptors to be uniform over a warp, as
  // wgmma requires.
  const auto part = mma.get_slice((cutlass::canonical_warp_group_idx() - 1) * warpgroup);
  // The "fragment" of an operand in shared memory is a descriptor.
  const cute::Tensor a = part.make_fragment_A(part.partition_A(shared.a_tiles()));  // (MMA, MMA_M, MMA_K, stage)
  const cute::Tensor b = part.make_fragment_B(part.partition_B(shared.b_tiles()));  // (MMA, MMA_N, MMA_K, stage)
  // Frees the stage in each block that loads into it.
  const unsigned lane = threadIdx.x % 32;
  const auto release = [&](int stage) {
    if constexpr (C::cluster == 1) {
      if (lane == 0) Empty::arrive(&shared.empty[stage]);
    } else {
      Empty::arrive(&shared.empty[stage], lane, lane < C::cluster);
    }
  };
  mma.accumulate_ = GMMA::ScaleOut::Zero;  // the first k-block of a tile overwrites the accumulators
  int before = 0;
  for (int step = 0; step < steps; ++step, ++turn) {
    Full::wait(&shared.full[turn.stage], turn.parity);
    cute::warpgroup_fence_operand(acc);
    cute::warpgroup_arrive();
#pragma unroll
    for (int at = 0; at < cute::size<2>(a); ++at) {
      cute::gemm(mma, a(_, _, at, turn.stage), b(_, _, at, turn.stage), acc);
      mma.accumulate_ = GMMA::ScaleOut::One;
    }
    cute::warpgroup_commit_batch();
    cute::warpgroup_wait<1>();  // the previous k-block is done, this one continues
    cute::warpgroup_fence_operand(acc);
    if (step > 0) release(before);
    before = turn.stage;
  }
  cute::warpgroup_wait<0>();
  cute::warpgroup_fence_operand(acc);
  release(before);
}

#endif

/// Computes all tiles, or with split-K the partial sums for a second kernel.
template <typename C>
__global__ void __launch_bounds__(threads, 1) wgmma_kernel(const __grid_constant__ Sm90Call call) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) std::byte memory[];
  Shared<C>& shared = *reinterpret_cast<Shared<C>*>(memory);
  begin(shared, call);
  if constexpr (C::cluster == 1)
    __syncthreads();
  else
    meet_cluster();

  // The second tile of a two-block cluster is below the first, or beside it.
  const int rank = static_cast<int>(blockIdx.x) % C::cluster;
  const auto first_row = [&](const CuteTiles::Tile& tile) {
    return (tile.m * C::sharing_b + (C::sharing_b > 1 ? rank : 0)) * C::tile_m;
  };
  const auto first_column = [&](const CuteTiles::Tile& tile) {
    return (tile.n * C::sharing_a + (C::sharing_a > 1 ? rank : 0)) * C::tile_n;
  };
  const unsigned first = blockIdx.x / C::cluster, clusters = gridDim.x / C::cluster;
  if (threadIdx.x < warpgroup) {
    cutlass::arch::warpgroup_reg_dealloc<40>();
    if (threadIdx.x == 0) {
      Producer<C> producer(call, shared, rank);
      if (call.b_known != 0) {
        const CuteTiles::Tile tile = call.tiles[first];
        producer.begin(tile, first_column(tile));
      }
      wait_for_previous();
      let_next_start();
      fence_proxy_async_global();
      for (unsigned index = first; index < call.tiles.count; index += clusters) {
        const CuteTiles::Tile tile = call.tiles[index];
        producer.produce(tile, first_row(tile), first_column(tile));
      }
    } else {
      wait_for_previous();
    }
  } else {
    cutlass::arch::warpgroup_reg_alloc<232>();
    wait_for_previous();
    // Uniform over the warp, and known to the compiler as such.
    const int warp = __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) / 32 - warpgroup / 32, 0);
    cute::Tensor acc = cute::partition_fragment_C(typename C::Mma{}, Shape<Int<C::tile_m>, Int<C::tile_n>>{});
    Turn<C::stages> turn;
    Sm90Epilogue<C::rows64, C::group_n, C::layout.buffers> epilogue(
        call.epilogue, call.y, shared.staging + warp * (C::layout.buffers * cute_part_bytes));
    for (unsigned index = first; index < call.tiles.count; index += clusters) {
      const CuteTiles::Tile tile = call.tiles[index];
      const int matrix = tile.product * call.tiles.split_k + tile.split;
      const int i = first_row(tile) + C::first_row(warp), j = first_column(tile) + C::first_column(warp);
      epilogue.begin(j);
      multiply(shared, tile.step_count, turn, acc);
      if constexpr (C::operand != Sm90Operand::tf32) {
        using Y = std::conditional_t<C::operand == Sm90Operand::fp16, __half, __nv_bfloat16>;
        if (call.epilogue.type != CuteEpilogue::Type::f32) {
          epilogue.template finish<Y>(acc, matrix, i, j);
          continue;
        }
      }
      epilogue.template finish<float>(acc, matrix, i, j);
    }
    epilogue.end();
  }
  // Other blocks still load and arrive here.
  if constexpr (C::cluster > 1) meet_cluster();
#endif
}

/// Split-K over a cluster: one tile per cluster, one split per block.
template <typename C>
__global__ void __launch_bounds__(threads, C::layout.blocks)
    join_kernel(const __grid_constant__ Sm90Call call, int split_k) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) std::byte memory[];
  Shared<C>& shared = *reinterpret_cast<Shared<C>*>(memory);
  begin(shared, call);
  __syncthreads();

  const int rank = static_cast<int>(blockIdx.x) % split_k;
  const CuteTiles::Tile tile = call.tiles.part(blockIdx.x / static_cast<unsigned>(split_k), rank, split_k);
  const int first_row = tile.m * C::tile_m, first_column = tile.n * C::tile_n;
  if (threadIdx.x < warpgroup) {
    cutlass::arch::warpgroup_reg_dealloc<C::layout.blocks == 1 ? 40 : 24>();
    if (threadIdx.x == 0) {
      Producer<C> producer(call, shared, 0);
      if (call.b_known != 0) producer.begin(tile, first_column);
      wait_for_previous();
      let_next_start();
      fence_proxy_async_global();
      producer.produce(tile, first_row, first_column);
    } else {
      wait_for_previous();
    }
    sync_cluster();
    meet_cluster();
    return;
  }
  cutlass::arch::warpgroup_reg_alloc<C::layout.blocks == 1 ? 232 : 104>();
  wait_for_previous();
  const int thread = static_cast<int>(threadIdx.x) - warpgroup, warp = thread / 32, lane = thread % 32;
  cute::Tensor acc = cute::partition_fragment_C(typename C::Mma{}, Shape<Int<C::tile_m>, Int<C::tile_n>>{});
  Turn<C::stages> turn;
  // A thread stores the same four columns in all its rows: c, if equal in all rows, is loaded during the main loop.
  constexpr int fours = C::tile_n / 4, max_split_k = 8;
  static_assert(cute_consumers * warpgroup % fours == 0);
  const bool row_of_c = call.epilogue.c_row == 0;
  const float4 c = row_of_c ? call.epilogue.load_c(0, first_column + thread % fours * 4) : float4{};
  multiply(shared, tile.step_count, turn, acc);

  // Reuses the ring: both warpgroups are done with it, and no load is in flight.
  constexpr int ld = C::tile_n + cute_join_gap;
  static_assert(C::tile_m * ld * sizeof(float) <= sizeof(shared.a) + sizeof(shared.b) && C::rows64 == 1);
  float* const rows = reinterpret_cast<float*>(memory);
  asm volatile("bar.sync 1, %0;" ::"n"(cute_consumers * warpgroup) : "memory");
#pragma unroll
  for (int pair = 0; pair < C::group_n / 4; ++pair) {
    const int row = C::first_row(warp) + lane / 4 + pair % 2 * 8;
    const int column = C::first_column(warp) + pair / 2 * 8 + lane % 4 * 2;
    *reinterpret_cast<float2*>(rows + row * ld + column) = {acc(pair * 2), acc(pair * 2 + 1)};
  }
  sync_cluster();
  const int own_rows = C::tile_m / split_k;
#pragma unroll 1
  for (int at = thread; at < own_rows * fours; at += cute_consumers * warpgroup) {
    const int row = rank * own_rows + at / fours, column = at % fours * 4;
    if (first_row + row >= call.epilogue.m || first_column + column >= call.epilogue.n) continue;
    const float* const own = rows + row * ld + column;
    float4 part[max_split_k];
#pragma unroll
    for (int split = 0; split < max_split_k; ++split)
      if (split < split_k) part[split] = *reinterpret_cast<const float4*>(in_block(split, own));
    float4 sum = part[0];
#pragma unroll
    for (int split = 1; split < max_split_k; ++split)
      if (split < split_k)
        sum = {sum.x + part[split].x, sum.y + part[split].y, sum.z + part[split].z, sum.w + part[split].w};
    const int i = first_row + row, j = first_column + column;
    call.epilogue.store(sum, row_of_c ? c : call.epilogue.load_c(i, j), tile.product, i, j);
  }
  meet_cluster();  // other blocks still read here
#endif
}

template <typename C>
void launch_tiling(const Context& context, const CuteCall& call, const CutePlan& plan) {
  const CuteProblem& p = call.problem;
  Sm90Call sm90;
  sm90.a = sm90_operand_map(call.a, p.m, p.k, p.batch, C::part_m, C::operand);
  sm90.b = C::b_transposed ? sm90_operand_map(call.b, p.n, p.k, p.batch, C::part_n, C::operand)
                           : sm90_operand_map(call.b, p.k, p.n, p.batch, C::tile_k, C::operand);
  sm90.a_moves = call.a.step != 0;
  sm90.b_moves = call.b.step != 0;
  sm90.b_known = call.b_known ? 1 : 0;
  sm90.tiles = cute_tiles(p, plan);
  sm90.epilogue = plan.split_k > 1 && !C::joins ? cute_reduce_split_k(call) : cute_epilogue(call);
  static_assert(acc_layout_is_as_expected<C>() && boxes_lie_as_expected<C>() && sizeof(Shared<C>) <= 227 << 10);
  constexpr std::size_t shared_bytes = sizeof(Shared<C>);
  if constexpr (C::joins) {
    const auto split_k = static_cast<unsigned>(plan.split_k);
    allow_shared_bytes(join_kernel<C>, shared_bytes);
    launch_clusters(context, join_kernel<C>, dim3(sm90.tiles.count * split_k), dim3(threads), dim3(split_k),
                    shared_bytes, sm90, static_cast<int>(plan.split_k));
  } else {
    if (sm90.epilogue.by_tma) sm90.y = sm90_y_map(sm90.epilogue, p.batch * plan.split_k, C::group_n);
    const unsigned at_once = static_cast<unsigned>(std::max(context.multiprocessors / C::cluster, 1));
    allow_shared_bytes(wgmma_kernel<C>, shared_bytes);
    launch_clusters(context, wgmma_kernel<C>, dim3(std::min(sm90.tiles.count, at_once) * C::cluster), dim3(threads),
                    dim3(C::cluster), shared_bytes, sm90);
  }
}

template <typename T>
constexpr bool is_compiled(int tile_m, int tile_n, GMMA::Major B_major) {
  constexpr auto multiply = std::is_same_v<T, cute::half_t>       ? Numerics::Multiply::fp16
                            : std::is_same_v<T, cute::bfloat16_t> ? Numerics::Multiply::bf16
                                                                  : Numerics::Multiply::tf32;
  return !cute_quick || cute_in_quick_build({.multiply = multiply, .b_transposed = B_major == GMMA::Major::K},
                                            {.core = CutePlan::Core::wgmma, .tile_m = tile_m, .tile_n = tile_n});
}

template <typename T, int tile_m, int tile_n, GMMA::Major B_major>
void launch_tile(const Context& context, const CuteCall& call, const CutePlan& plan) {
  if constexpr (!is_compiled<T>(tile_m, tile_n, B_major)) {
    refuse_quick_build();
  } else {
    if constexpr (cute_joins(tile_m, tile_n))
      if (plan.joined()) return launch_tiling<Tiling<T, tile_m, tile_n, B_major, 1, true>>(context, call, plan);
    if constexpr (cute_shares(tile_m, tile_n, B_major == GMMA::Major::K))
      if (plan.cluster == 2) return launch_tiling<Tiling<T, tile_m, tile_n, B_major, 2>>(context, call, plan);
    launch_tiling<Tiling<T, tile_m, tile_n, B_major, 1>>(context, call, plan);
  }
}

template <typename T>
void launch_type(const Context& context, const CuteCall& call, const CutePlan& plan) {
  const auto launch_major = [&](auto major) {
    constexpr GMMA::Major B_major = decltype(major)::value;
    if (plan.tile_m == 64 && plan.tile_n == 256) return launch_tile<T, 64, 256, B_major>(context, call, plan);
    if (plan.tile_n == 256) return launch_tile<T, 128, 256, B_major>(context, call, plan);
    if constexpr (B_major == GMMA::Major::K) {
      if (plan.tile_m == 256) return launch_tile<T, 256, 128, B_major>(context, call, plan);
      if (plan.tile_m == 64 && plan.tile_n == 64) return launch_tile<T, 64, 64, B_major>(context, call, plan);
    }
    if (plan.tile_m == 64) return launch_tile<T, 64, 128, B_major>(context, call, plan);
    if (plan.tile_n == 64) return launch_tile<T, 128, 64, B_major>(context, call, plan);
    launch_tile<T, 128, 128, B_major>(context, call, plan);
  };
  // TF32 operands need contiguous k.
  if constexpr (!std::is_same_v<T, cute::tfloat32_t>)
    if (!call.problem.b_transposed) return launch_major(std::integral_constant<GMMA::Major, GMMA::Major::MN>{});
  launch_major(std::integral_constant<GMMA::Major, GMMA::Major::K>{});
}

}  // namespace
}  // namespace lenslet::cuda
