// separable: a depthwise convolution of 3x3 and the 1x1 convolution behind it in one kernel, NHWC of 16 bits, for
// SeparableConv. What the first computes never leaves the registers.
//
// Both halves go by mma.sync. Lane l loads, for the pixels of rows l / 4 and l / 4 + 8 of operands a, the channels
// 8t ... 8t + 7 of a chunk of 32, t = l % 4: four words of two. Word j of a tap's pixel is, as it was loaded, a part of
// an operand a of eight channels, the j-th two of each t; an operand b that has this tap's weights on its diagonal
// multiplies each channel by its own, and an instruction of 16 terms has room for two taps. Seven of eight products are
// of zeros: still two instructions of 8 cycles do what 32 of fma and conversion would. The sums stand where the operand
// a of the 1x1 convolution wants its terms: they are activated, rounded, and multiplied by filters numbered for that,
// as thin_mma's are. An infinity makes NaN of the channels beside it, too.
//
// The outputs of a lane stand one above the other, so that rows of inputs serve several. A block's filters and taps go
// to shared memory before the kernel ahead has ended. Where pixels are few, the warps of a block and the blocks of a
// cluster share the channels out; their sums are added in a fixed order.

#include <algorithm>
#include <bit>
#include <optional>
#include <string>
#include <utility>

#include "base/aligned_format.h"
#include "base/cuda/fast_divider.h"
#include "base/cuda/launch.h"
#include "ops/conv/algorithm.h"
#include "ops/conv/cuda/cluster.cuh"
#include "ops/conv/cuda/half_mma.cuh"
#include "ops/conv/cuda/separable_plan.h"
#include "ops/conv/cuda/some_of.cuh"
#include "ops/core/activation.cuh"
#include "ops/core/checks.h"
#include "ops/core/kernel.h"
#include "ops/core/sum_tolerance.h"

namespace lenslet::cuda {
namespace {

constexpr int size = 3, taps_of_size = size * size;
/// Of a chunk and of one of its words, in 16 bytes.
constexpr int word_taps = 8 * separable_taps / 4, chunk_taps = 4 * word_taps + separable_chunk / 4;

/// filters [groups][chunks][2 of terms][tiles / 2][lanes] of uint4: two tiles' parts of an operand b. taps, of each
/// chunk, [4 words][8 channels][separable_taps] of 32 bits: a tap's weight in the half that it has in an operand b;
/// then the biases, [4 words][8 channels] of float.
struct SeparableCall {
  int height, width, c, x_pixel;  ///< pixels: elements from one to the next
  int p, q, k, y_pixel, k_room;   ///< k_room: of the residual
  int pad_top, pad_left;
  int items, turns, chunks, block_chunks, warp_chunks, pixel_warps, channel_warps, slices;
  FastDivider columns, strips;
  DeviceActivation depthwise_activation, activation;
  const void *x = nullptr, *residual = nullptr;
  const float* bias = nullptr;
  void* y = nullptr;
  const uint4* filters = nullptr;
  const uint4* taps = nullptr;
};

/// Where an item lies.
struct Item {
  int image, p, q;
  bool exists;
  template <int rows>
  __device__ static Item at(const SeparableCall& call, int item) {
    const bool exists = item < call.items;
    int rest = exists ? item : 0;
    const int q = call.columns.split(rest);
    const int p = call.strips.split(rest) * rows;
    return {rest, p, q, exists};
  }
};

/// 16 bytes at `from` + row * row_bytes + column * pixel_bytes where bit `bit` of `inside` is set, else zeros.
/// Addresses and predicates are made here, by hand: outside, the compiler keeps all of them in registers.
template <int row, int column, int bit>
__device__ inline void load_if(std::uint32_t (&to)[4], const void* from, int row_bytes, int pixel_bytes,
                               unsigned inside) {
  asm volatile(
      "{\n"
      "  .reg .pred inside;\n"
      "  .reg .b32 masked;\n"
      "  .reg .s64 at;\n"
      "  and.b32 masked, %7, %10;\n"
      "  setp.ne.u32 inside, masked, 0;\n"
      "  mad.wide.s32 at, %5, %8, %4;\n"
      "  mad.wide.s32 at, %6, %9, at;\n"
      "  mov.b32 %0, 0;\n"
      "  mov.b32 %1, 0;\n"
      "  mov.b32 %2, 0;\n"
      "  mov.b32 %3, 0;\n"
      "  @inside ld.global.v4.b32 {%0, %1, %2, %3}, [at];\n"
      "}"
      : "=&r"(to[0]), "=&r"(to[1]), "=&r"(to[2]), "=&r"(to[3])
      : "l"(from), "r"(row_bytes), "r"(pixel_bytes), "r"(inside), "n"(row), "n"(column), "n"(1 << bit));
}
template <int rows, int... i>
__device__ inline void load_window(std::uint32_t (&window)[rows][size][4], const void* from, int row_bytes,
                                   int pixel_bytes, unsigned inside, std::integer_sequence<int, i...>) {
  (load_if<i / size, i % size, i>(window[i / size][i % size], from, row_bytes, pixel_bytes, inside), ...);
}

/// The sums of four tiles for two rows of outputs, of which the lane has the filters 8t ... 8t + 7 of set `set`.
template <typename T>
__device__ inline void finish(const SeparableCall& call, const PairClamp<T>& clamp, const Item& item, int p, int set,
                              const float (&sums)[4][4]) {
  const int filter = (set * 4 + static_cast<int>(threadIdx.x) % 4) * 8;
  if (filter >= call.k || !item.exists) return;
  const std::int64_t pixel = (std::int64_t{item.image} * call.p + p) * call.q + item.q;
  float v[2][8];
  const bool two = p + 1 < call.p;
  std::uint32_t added[2][4] = {};
  if (call.residual != nullptr) {
    const T* const residual = static_cast<const T*>(call.residual) + pixel * call.k_room + filter;
    load_or_zero(added[0], residual, true);
    load_or_zero(added[1], residual + std::int64_t{call.q} * call.k_room, two);
  }
  float4 low{}, high{};
  if (call.bias != nullptr) low = four_of(call.bias, filter, call.k), high = four_of(call.bias, filter + 4, call.k);
  const float bias[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
  for (int i = 0; i < 16; ++i) v[i / 8][i % 8] = sums[i % 8 / 2][i / 8 * 2 + i % 2] + bias[i % 8];
  if (call.residual != nullptr) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float2 pair = widened_pair<T>(added[i / 4][i % 4]);
      v[i / 4][i % 4 * 2] += pair.x;
      v[i / 4][i % 4 * 2 + 1] += pair.y;
    }
  }
  if (!call.activation.is_clamp()) {
    // The others' code is long: once for both.
#pragma unroll 1
    for (int turn = 0; turn < 2; ++turn) {
      call.activation.apply_for_halves(v[0]);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const float done = v[0][j];
        v[0][j] = v[1][j];
        v[1][j] = done;
      }
    }
  }
  T* const y = static_cast<T*>(call.y) + pixel * call.y_pixel + filter;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    uint4 words;
    words.x = clamp(narrowed_pair<T>(v[i][0], v[i][1]));
    words.y = clamp(narrowed_pair<T>(v[i][2], v[i][3]));
    words.z = clamp(narrowed_pair<T>(v[i][4], v[i][5]));
    words.w = clamp(narrowed_pair<T>(v[i][6], v[i][7]));
    if (i == 0 || two) *reinterpret_cast<uint4*>(y + std::int64_t{i} * call.q * call.y_pixel) = words;
  }
}

__device__ inline float4 operator+(float4 a, float4 b) { return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }

template <typename T, int stride, int rows, int tiles>
__global__ void __launch_bounds__(32 * separable_most_warps(rows, tiles), separable_bound_blocks(rows, tiles))
    separable_kernel(const __grid_constant__ SeparableCall call) {
  constexpr int inputs = (rows - 1) * stride + size, operands = rows / 2, sets = tiles / 4;
  extern __shared__ uint4 shared[];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32, t = lane % 4;
  const int warps = static_cast<int>(blockDim.x) / 32;
  const int rank = static_cast<int>(blockIdx.x) % call.slices, group = static_cast<int>(blockIdx.y);
  const int pixel_warp = warp % call.pixel_warps, channel_warp = warp / call.pixel_warps;
  const int first_chunk = rank * call.block_chunks;
  const int chunks = max(0, min(call.block_chunks, call.chunks - first_chunk));

  // The block's filters and taps.
  constexpr int chunk_filters = 2 * tiles / 2 * 32;  // uint4
  uint4* const filters = shared;
  uint4* const taps = shared + call.block_chunks * chunk_filters;
  uint4* const zeros = taps + call.block_chunks * chunk_taps;
  float4* const partial = reinterpret_cast<float4*>(zeros + 4 * word_taps);
  {
    const uint4* const from = call.filters + (std::int64_t{group} * call.chunks + first_chunk) * chunk_filters;
    for (int i = static_cast<int>(threadIdx.x); i < chunks * chunk_filters; i += static_cast<int>(blockDim.x))
      copy_async_16(filters + i, from + i, true);
    const uint4* const taps_from = call.taps + first_chunk * chunk_taps;
    for (int i = static_cast<int>(threadIdx.x); i < chunks * chunk_taps; i += static_cast<int>(blockDim.x))
      copy_async_16(taps + i, taps_from + i, true);
    for (int i = static_cast<int>(threadIdx.x); i < 4 * word_taps; i += static_cast<int>(blockDim.x))
      zeros[i] = uint4{0, 0, 0, 0};
  }
  // Lanes off the diagonal of an operand b have zeros.
  const bool diagonal = lane / 8 == t;
  const uint4* const lane_taps = diagonal ? taps + lane / 4 * (separable_taps / 4) : zeros;
  const int lane_step = diagonal ? chunk_taps : 0;
  wait_for_previous();
  let_next_start();

  const int begin = channel_warp * call.warp_chunks, end = min(begin + call.warp_chunks, chunks);
  const int clusters = static_cast<int>(gridDim.x) / call.slices;
  const PairClamp<T> clamp(call.activation.clamp().low, call.activation.clamp().high);
  const PairClamp<T> depthwise_clamp(call.depthwise_activation.clamp().low, call.depthwise_activation.clamp().high);
  const bool plain = call.depthwise_activation.is_clamp();

  std::uint32_t window[inputs][size][4];
  const T* x = nullptr;
  unsigned inside = 0;  // a bit for each of the window's pixels
  const auto go_to = [&](int turn) {
    const Item item = Item::at<rows>(call, (turn * call.pixel_warps + pixel_warp) * 8 + lane / 4);
    const int top = item.p * stride - call.pad_top, left = item.q * stride - call.pad_left;
    x = static_cast<const T*>(call.x) + std::int64_t{item.image} * call.height * call.width * call.x_pixel +
        (top * call.width + left) * call.x_pixel + first_chunk * separable_chunk + 8 * t;
    inside = 0;
#pragma unroll
    for (int i = 0; i < inputs * size; ++i)
      if (item.exists && static_cast<unsigned>(top + i / size) < static_cast<unsigned>(call.height) &&
          static_cast<unsigned>(left + i % size) < static_cast<unsigned>(call.width))
        inside |= 1U << i;
  };
  const int pixel_bytes = call.x_pixel * static_cast<int>(sizeof(T)), row_bytes = call.width * pixel_bytes;
  const auto load = [&](int chunk) {
    const bool channels = (first_chunk + chunk) * separable_chunk + 8 * t < call.c;
    load_window(window, x + chunk * separable_chunk, row_bytes, pixel_bytes, channels ? inside : 0,
                std::make_integer_sequence<int, inputs * size>());
  };

  int turn = static_cast<int>(blockIdx.x) / call.slices;
  go_to(turn);
  if (begin < end) load(begin);
  wait_for_all_copies();
  __syncthreads();

  for (; turn < call.turns; turn += clusters) {
    float sums[operands][tiles][4] = {};
    for (int chunk = begin; chunk < end; ++chunk) {
      if (call.c % 8 != 0 && first_chunk + chunk == call.chunks - 1) {
        // What lies in the room is anything, and zeros in filters do not make zeros of it.
        const int channel = (call.chunks - 1) * separable_chunk + 8 * t;
#pragma unroll
        for (int i = 0; i < inputs * size * 4; ++i) {
          const int at = channel + i % 4 * 2;
          window[i / 4 / size][i / 4 % size][i % 4] &= at + 1 < call.c ? 0xffffffffU : at < call.c ? 0xffffU : 0;
        }
      }
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        std::uint32_t a[rows][2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int j = step * 2 + half;
          std::uint32_t tap[separable_taps];
#pragma unroll
          for (int i = 0; i < separable_taps / 4; ++i) {
            const uint4 four = lane_taps[chunk * lane_step + j * word_taps + i];
            tap[4 * i] = four.x, tap[4 * i + 1] = four.y, tap[4 * i + 2] = four.z, tap[4 * i + 3] = four.w;
          }
          const float2 bias = reinterpret_cast<const float2*>(taps + chunk * chunk_taps + 4 * word_taps)[j * 4 + t];
#pragma unroll
          for (int m = 0; m < operands; ++m) {
            float v[4] = {bias.x, bias.y, bias.x, bias.y};
#pragma unroll
            for (int i = 0; i < taps_of_size; i += 2) {
              const auto at = [&](int p, int of) -> std::uint32_t {
                const int known = min(i + of, taps_of_size - 1);  // there is no tenth: its weight is zero
                return window[(2 * m + p) * stride + known / size][known % size][j];
              };
              const std::uint32_t pixels[4] = {at(0, 0), at(1, 0), at(0, 1), at(1, 1)};
              multiply_add<T>(v, pixels, uint2{tap[i], tap[i + 1]});
            }
            if (!plain) call.depthwise_activation.apply_for_halves(v);
            a[2 * m][half] = depthwise_clamp(narrowed_pair<T>(v[0], v[1]));
            a[2 * m + 1][half] = depthwise_clamp(narrowed_pair<T>(v[2], v[3]));
          }
        }
        if (step == 1) {  // the window is free
          const bool last = chunk + 1 == end;
          if (last) go_to(turn + clusters);
          load(last ? begin : chunk + 1);
        }
#pragma unroll
        for (int pair = 0; pair < tiles / 2; ++pair) {
          const uint4 b = filters[((chunk * 2 + step) * (tiles / 2) + pair) * 32 + lane];
#pragma unroll
          for (int m = 0; m < operands; ++m) {
            const std::uint32_t left[4] = {a[2 * m][0], a[2 * m + 1][0], a[2 * m][1], a[2 * m + 1][1]};
            multiply_add<T>(sums[m][2 * pair], left, uint2{b.x, b.y});
            multiply_add<T>(sums[m][2 * pair + 1], left, uint2{b.z, b.w});
          }
        }
      }
    }

    const auto item_of = [&](int of_warp) {
      return Item::at<rows>(call, (turn * call.pixel_warps + of_warp) * 8 + lane / 4);
    };
    if (call.channel_warps * call.slices == 1) {
      const Item item = item_of(pixel_warp);
#pragma unroll
      for (int m = 0; m < operands; ++m)
#pragma unroll
        for (int set = 0; set < sets; ++set) {
          float of_set[4][4];
#pragma unroll
          for (int i = 0; i < 16; ++i) of_set[i / 4][i % 4] = sums[m][set * 4 + i / 4][i % 4];
          if (item.p + 2 * m < call.p) finish<T>(call, clamp, item, item.p + 2 * m, group * sets + set, of_set);
        }
      continue;
    }
    // [channel_warp][pixel_warp][operand][tile][lane]
    const int of_channels = call.pixel_warps * operands * tiles * 32;
    float4* const mine = partial + channel_warp * of_channels + pixel_warp * operands * tiles * 32 + lane;
#pragma unroll
    for (int i = 0; i < operands * tiles; ++i) {
      const float(&sum)[4] = sums[i / tiles][i % tiles];
      mine[i * 32] = {sum[0], sum[1], sum[2], sum[3]};
    }
    __syncthreads();
    if (call.slices > 1) {
      if (call.channel_warps > 1)
        for (int i = static_cast<int>(threadIdx.x); i < of_channels; i += static_cast<int>(blockDim.x)) {
          float4 sum = partial[i];
#pragma unroll 2
          for (int other = 1; other < call.channel_warps; ++other) sum = sum + partial[other * of_channels + i];
          partial[i] = sum;
        }
      sync_cluster();
    }
    const int sources = call.slices > 1 ? call.slices : call.channel_warps;
    for (int job = warp * call.slices + rank; job < call.pixel_warps * operands * sets; job += warps * call.slices) {
      const int set = job % sets, m = job / sets % operands;
      const float* const from = reinterpret_cast<const float*>(partial + (job / sets * tiles + set * 4) * 32 + lane);
      float of_set[4][4] = {};
#pragma unroll 2
      for (int source = 0; source < sources; ++source) {
        const auto* const theirs =
            reinterpret_cast<const float4*>(call.slices > 1 ? in_block(source, from) : from + 4 * source * of_channels);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float4 sum = theirs[i * 32];
          of_set[i][0] += sum.x, of_set[i][1] += sum.y, of_set[i][2] += sum.z, of_set[i][3] += sum.w;
        }
      }
      const Item item = item_of(job / sets / operands);
      if (item.p + 2 * m < call.p) finish<T>(call, clamp, item, item.p + 2 * m, group * sets + set, of_set);
    }
    if (call.slices > 1)
      sync_cluster();
    else
      __syncthreads();
  }
}

using SeparableKernelFunction = void (*)(SeparableCall);

template <typename T, int stride>
SeparableKernelFunction kernel_of(const SeparableCut& cut) {
  if (cut.rows == 4) {
    if constexpr (stride == 1)
      return cut.tiles == 4 ? separable_kernel<T, stride, 4, 4> : separable_kernel<T, stride, 4, 8>;
  }
  switch (cut.tiles) {
    case 4:
      return separable_kernel<T, stride, 2, 4>;
    case 8:
      return separable_kernel<T, stride, 2, 8>;
    case 12:
      return separable_kernel<T, stride, 2, 12>;
    case 16:
      return separable_kernel<T, stride, 2, 16>;
    default:
      return separable_kernel<T, stride, 2, 20>;
  }
}

SeparableKernelFunction kernel_of(const SeparableProblem& problem, const SeparableCut& cut) {
  return dispatch(problem.depthwise.storage, Types<Float16, BFloat16>(), [&]<typename T>(std::type_identity<T>) {
    return problem.depthwise.stride_h == 1 ? kernel_of<T, 1>(cut) : kernel_of<T, 2>(cut);
  });
}

class BoundSeparable final : public BoundKernel {
 public:
  BoundSeparable(const SeparableProblem& problem, const SeparableCut& cut)
      : kernel_(kernel_of(problem, cut)), cut_(cut) {
    const SeparableSizes sizes(problem);
    const ConvProblem &d = problem.depthwise, &p = problem.pointwise;
    shared_bytes_ = sizes.shared_bytes(cut);
    groups_ = static_cast<unsigned>(sizes.groups(cut));
    filter_bytes_ = static_cast<std::size_t>(sizes.groups(cut) * sizes.chunks * cut.tiles) * 512;
    call_.height = static_cast<int>(d.h);
    call_.width = static_cast<int>(d.w);
    call_.c = static_cast<int>(d.c);
    call_.x_pixel = static_cast<int>(aligned_channels(d.c, d.storage));
    call_.p = static_cast<int>(d.p);
    call_.q = static_cast<int>(d.q);
    call_.k = static_cast<int>(p.k);
    call_.k_room = static_cast<int>(aligned_channels(p.k, p.storage));
    call_.pad_top = static_cast<int>(d.pad_top);
    call_.pad_left = static_cast<int>(d.pad_left);
    call_.items = static_cast<int>(sizes.items(cut));
    call_.turns = static_cast<int>(sizes.turns(cut));
    call_.chunks = static_cast<int>(sizes.chunks);
    call_.block_chunks = static_cast<int>(sizes.block_chunks(cut));
    call_.warp_chunks = static_cast<int>(sizes.warp_chunks(cut));
    call_.pixel_warps = cut.pixel_warps;
    call_.channel_warps = cut.channel_warps;
    call_.slices = cut.slices;
    call_.columns = FastDivider(d.q);
    call_.strips = FastDivider((d.p + cut.rows - 1) / cut.rows);
    call_.depthwise_activation = DeviceActivation(d.activation);
    call_.activation = DeviceActivation(p.activation);
  }

  void run(const KernelRun& run) const override {
    SeparableCall call = call_;
    call.x = run.in<void>(SeparableConvOp::input);
    call.bias = run.in<float>(SeparableConvOp::bias);
    call.residual = run.in<void>(SeparableConvOp::residual);
    call.y = run.out<void>();
    call.y_pixel = static_cast<int>(y_pixel(call.k, run));
    call.filters = reinterpret_cast<const uint4*>(run.blob);
    call.taps = reinterpret_cast<const uint4*>(run.blob + filter_bytes_);
    const auto slices = static_cast<unsigned>(cut_.slices);
    allow_shared_bytes(kernel_, shared_bytes_);
    launch_clusters(*run.cuda, kernel_, dim3(static_cast<unsigned>(cut_.clusters) * slices, groups_),
                    static_cast<unsigned>(32 * cut_.warps()), dim3(slices), shared_bytes_, call);
  }

 private:
  SeparableKernelFunction kernel_;
  SeparableCut cut_;
  SeparableCall call_{};
  unsigned groups_ = 1;
  std::size_t shared_bytes_ = 0, filter_bytes_ = 0;
};

class Separable final : public Kernel {
 public:
  std::string_view name() const override { return "separable"; }
  DeviceKind device() const override { return DeviceKind::cuda; }
  DTypeSet types() const override { return dtypes<Types<Float16, BFloat16>>; }

  Offer offer(const Problem& node, const Target& target) const override {
    using Op = SeparableConvOp;
    const auto inputs = node.inputs();
    const DType dtype = node.outputs()[0].dtype;
    if (!types().contains(dtype) || inputs[Op::input].type.dtype != dtype)
      return Offer::refuse("it is not of 16 bits from end to end");
    const SeparableProblem problem = problem_of(node);
    if (auto why = refuse(problem)) return Offer::refuse(*why);
    for (const std::size_t i : {Op::depthwise_filter, Op::depthwise_bias, Op::filter})
      if (present(inputs, i) && inputs[i].constant == nullptr)
        return Offer::refuse("its filters are computed by the network");
    if (problem.pointwise.residual && (inputs[Op::residual].type.dtype != dtype || inputs[Op::residual].constant))
      return Offer::refuse("its residual is a constant, or of another type");
    if (separable_cuts(problem, target.device).empty()) return Offer::refuse("its filters exceed shared memory");

    const SeparableCut cut = plan_separable(problem, target.device);
    Candidate candidate;
    candidate.config = cut.str();
    candidate.inputs.assign(inputs.size(), formats::nchw);
    candidate.inputs[Op::input] = aligned_nhwc(problem.depthwise.c, dtype);
    candidate.outputs = {aligned_nhwc(problem.pointwise.k, dtype)};
    if (problem.pointwise.residual) candidate.inputs[Op::residual] = candidate.outputs[0];
    candidate.estimated_us = estimate_separable_us(problem, cut, target.device);
    candidate.tolerance = tolerance(problem);
    candidate.in_place = input_bit(Op::residual);
    candidate.pitched_output = !problem.pointwise.residual;
    candidate.reads = input_bit(Op::input) | input_bit(Op::bias) | input_bit(Op::residual);
    return candidate;
  }

  std::optional<BlobSpec> blob(const Problem& node, const Candidate& candidate) const override {
    const SeparableProblem problem = problem_of(node);
    const SeparableCut cut = read_separable_cut(problem, candidate.config);
    const SeparableSizes sizes(problem);
    BlobSpec spec;
    spec.bytes = static_cast<std::size_t>(sizes.groups(cut) * sizes.chunks * cut.tiles) * 512 +
                 static_cast<std::size_t>(sizes.chunks * chunk_taps) * sizeof(uint4);
    spec.key = std::string("separable ").append(to_string(problem.depthwise.storage)).append(" tiles=");
    spec.key.append(std::to_string(cut.tiles));
    const auto& op = node.as<SeparableConvOp>();
    for (const ConvOp* half : {&op.depthwise(), &op.pointwise()}) {
      const std::vector<float>& scale = half->epilogue()->scale;
      spec.key.append(scale.empty() ? "|" : "|scaled ");
      spec.key.append(reinterpret_cast<const char*>(scale.data()), scale.size() * sizeof(float));
    }
    return spec;
  }

  void prepare(const Problem& node, const Candidate& candidate, std::span<std::byte> blob) const override {
    using Op = SeparableConvOp;
    const SeparableProblem problem = problem_of(node);
    const SeparableCut cut = read_separable_cut(problem, candidate.config);
    const SeparableSizes sizes(problem);
    const auto& op = node.as<Op>();
    const auto filter_of = [&](const ConvOp& half, std::size_t input, std::int64_t terms) {
      const std::vector<float>& scale = half.epilogue()->scale;
      return ConvFilter{.w = node.inputs()[input].constant->values<float>().data(),
                        .scale = scale.empty() ? nullptr : scale.data(),
                        .terms = terms};
    };
    const ConvFilter depthwise = filter_of(op.depthwise(), Op::depthwise_filter, taps_of_size);
    const ConvFilter pointwise = filter_of(op.pointwise(), Op::filter, sizes.c);
    std::byte* const end =
        dispatch(problem.depthwise.storage, Types<Float16, BFloat16>(), [&]<typename T>(std::type_identity<T>) {
          T* element = reinterpret_cast<T*>(blob.data());
          for (std::int64_t group = 0; group < sizes.groups(cut); ++group)
            for (std::int64_t step = 0; step < sizes.chunks * 2; ++step)
              for (std::int64_t pair = 0; pair < cut.tiles / 2; ++pair)
                for (std::int64_t lane = 0; lane < 32; ++lane)
                  for (std::int64_t i = 0; i < 8; ++i, ++element) {
                    const std::int64_t tile = pair * 2 + i / 4, column = lane / 4;
                    const std::int64_t k =
                        (group * cut.tiles + tile / 4 * 4) * 8 + column / 2 * 8 + tile % 4 * 2 + column % 2;
                    const std::int64_t c = step / 2 * separable_chunk + lane % 4 * 8 + step % 2 * 4 + i % 4;
                    *element = narrowed<T>(k < sizes.k && c < sizes.c ? pointwise.exact_weight(k, c) : 0.0);
                  }
          return reinterpret_cast<std::byte*>(element);
        });
    const Tensor* const bias =
        present(node.inputs(), Op::depthwise_bias) ? node.inputs()[Op::depthwise_bias].constant : nullptr;
    const auto channel = [](std::int64_t chunk, std::int64_t word, std::int64_t i) {
      return chunk * separable_chunk + i / 2 * 8 + word * 2 + i % 2;
    };
    auto* to = reinterpret_cast<std::uint32_t*>(end);
    for (std::int64_t chunk = 0; chunk < sizes.chunks; ++chunk) {
      for (std::int64_t i = 0; i < 4 * 8 * separable_taps; ++i) {
        const std::int64_t tap = i % separable_taps, n = i / separable_taps % 8;
        const std::int64_t c = channel(chunk, i / separable_taps / 8, n);
        const double weight = tap < taps_of_size && c < sizes.c ? depthwise.exact_weight(c, tap) : 0.0;
        const std::uint16_t bits =
            problem.depthwise.storage == DType::f16 ? narrowed<Float16>(weight).bits : narrowed<BFloat16>(weight).bits;
        *to++ = std::uint32_t{bits} << (16 * (n % 2));
      }
      for (std::int64_t i = 0; i < separable_chunk; ++i) {
        const std::int64_t c = channel(chunk, i / 8, i % 8);
        const float value = bias && c < sizes.c ? bias->values<float>()[static_cast<std::size_t>(c)] : 0.0F;
        *to++ = std::bit_cast<std::uint32_t>(value);
      }
    }
  }

  std::unique_ptr<const BoundKernel> bind(const Binding& binding) const override {
    const SeparableProblem problem = problem_of(binding.problem);
    return std::make_unique<BoundSeparable>(problem, read_separable_cut(problem, binding.candidate.config));
  }

 private:
  static SeparableProblem problem_of(const Problem& node) { return node.as<SeparableConvOp>().problem(node.inputs()); }

  static std::optional<std::string> refuse(const SeparableProblem& problem) {
    const ConvProblem &d = problem.depthwise, &p = problem.pointwise;
    if (d.r != size || d.s != size) return "its depthwise filters are not 3x3";
    if (d.stride_h != d.stride_w || d.stride_h > 2) return "its stride is not 1 or 2";
    if (d.dilation_h != 1 || d.dilation_w != 1) return "it is dilated";
    if (d.n == 0) return "it has no images";
    ConvProblem room = p;
    room.k = aligned_channels(p.k, p.storage);
    ConvProblem of_x = d;
    of_x.c = of_x.k = of_x.groups = aligned_channels(d.c, d.storage);
    const auto elements = [](const ConvProblem& of) {
      const ConvProblem padded = of.with_explicit_padding();
      return static_cast<double>(padded.h * padded.w) * static_cast<double>(padded.c);
    };
    if (std::max(elements(of_x), elements(room)) > 0x1p30 ||
        static_cast<double>(d.n) * static_cast<double>(d.p * d.q) > 0x1p30)
      return "a tensor beyond 32-bit offsets";
    return std::nullopt;
  }

  /// As half_sum_tolerance(), of three roundings: of the taps, of what they sum to, and of the filters, together 0.73
  /// roundoffs rms of a product.
  static double tolerance(const SeparableProblem& problem) {
    return 11.7 * unit_roundoff(problem.depthwise.storage) + 2 * sum_tolerance(problem.pointwise.c + taps_of_size);
  }
};

}  // namespace

const Kernel& separable_conv() {
  static const Separable kernel;
  return kernel;
}

}  // namespace lenslet::cuda
