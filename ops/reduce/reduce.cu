#include "ops/reduce/reduce_cuda.h"

#include <algorithm>
#include <bit>

#include "ops/reduce/reduce_kernel.cuh"

namespace lenslet::cuda {

namespace {

/// Integers: the kind is chosen at run time, since networks spend no time on them.
template <typename T>
struct IntegerFold {
  using In = T;
  using Out = T;
  using Rule = ReduceKind;
  std::uint64_t value = 0;

  __device__ explicit IntegerFold(Rule kind) {
    if (kind == ReduceKind::prod) value = 1;
    if (kind == ReduceKind::max) value = static_cast<std::uint64_t>(reduce::least_value<T>);
    if (kind == ReduceKind::min) value = static_cast<std::uint64_t>(reduce::greatest_value<T>);
  }
  __device__ void add(T x, std::int64_t, Rule kind) {
    const auto wide = static_cast<std::uint64_t>(x);
    if (kind == ReduceKind::sum_square)
      value += wide * wide;
    else if (kind == ReduceKind::l1)
      value += static_cast<std::int64_t>(wide) < 0 ? 0 - wide : wide;  // unsigned types have no l1
    else
      merge_value(wide, kind);
  }
  __device__ void merge(const IntegerFold& other, Rule kind) { merge_value(other.value, kind); }
  __device__ T result(std::int64_t count, Rule kind) const {
    if (kind != ReduceKind::mean) return static_cast<T>(value);
    return count == 0 ? T{0} : static_cast<T>(static_cast<std::int64_t>(value) / count);
  }

 private:
  __device__ void merge_value(std::uint64_t other, Rule kind) {
    const auto a = static_cast<T>(value), b = static_cast<T>(other);  // of extremes, elements
    if (kind == ReduceKind::prod)
      value *= other;
    else if (kind == ReduceKind::max)
      value = a < b ? other : value;
    else if (kind == ReduceKind::min)
      value = b < a ? other : value;
    else
      value += other;
  }
};

template <typename Fold>
constexpr bool sums_values = std::is_same_v<Fold, reduce::SumFold<float, reduce::Term::value>>;
template <typename Fold>
constexpr bool sums_squares = std::is_same_v<Fold, reduce::SumFold<float, reduce::Term::square>>;
/// Elements are multiplied by this in short sums, which then do not overflow.
template <typename Fold>
constexpr float short_sum_unit = sums_values<Fold> ? 0x1p-4F : 1.0F;

/// A float fold for halves, rounded once, or not at all for float32 out.
template <typename Half, typename Base, typename Result = Half>
struct HalfFold : Base {
  using In = Half;
  using Out = Result;
  using Rule = typename Base::Rule;
  using Base::Base;
  __device__ static Half neutral(Rule rule) { return narrowed<Half>(static_cast<float>(Base::neutral(rule))); }
  __device__ void add(Half x, std::int64_t i, Rule rule) { Base::add(widened(x), i, rule); }
  // Short sums of elements or of squares in float. Conversions to double run at an eighth of the rate of float
  // additions: with one per element GlobalAveragePool of 64x1000x13x13 took 15 us instead of memory's 5.
  /// sum with an element more, of at most sixteen.
  __device__ static float added(float sum, Half x) {
    const float wide = widened(x);
    return fmaf(wide, sums_squares<Base> ? wide : short_sum_unit<Base>, sum);
  }
  /// Squares of bfloat16 overflow float.
  __device__ void add_short(float sum) requires(sums_values<Base> ||
                                                (sums_squares<Base> && std::is_same_v<Half, Float16>)) {
    Base::sum += static_cast<double>(sum) / static_cast<double>(short_sum_unit<Base>);
  }
  __device__ Result result(std::int64_t count, Rule rule) const { return convert<Result>(Base::result(count, rule)); }
};

ReduceGeometry::Loops loops_of(const StridedLoops& loops) {
  ReduceGeometry::Loops to;
  to.rank = std::max(1, loops.rank());
  for (int i = 0; i < loops.rank(); ++i)
    to.loop[i] = {Radix(std::max<std::int64_t>(1, loops[i].dim)), loops[i].from, loops[i].to};
  to.count = loops.count();
  to.narrow = to.count < Radix::narrow_end;
  return to;
}

int log2_floor(std::int64_t value) { return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(value))) - 1; }
int log2_ceil(std::int64_t value) { return value <= 1 ? 0 : log2_floor(value - 1) + 1; }

// Eight blocks of 256 threads per multiprocessor of an H200 (132): five run at once, the others balance the end.
constexpr std::int64_t blocks_wanted = 1056;

}  // namespace

ReduceGeometry reduce_geometry(const reduce::Loops& loops) {
  constexpr int block_bits = 8;
  static_assert(1 << block_bits == reduce_threads);
  ReduceGeometry g;
  g.kept = loops_of(loops.kept);
  g.reduced = loops_of(loops.reduced);
  const std::int64_t outputs = g.kept.count, count = g.reduced.count;
  g.across = loops.kept.rank() > 0 && loops.kept[loops.kept.rank() - 1].from == 1;
  // A thread should fold several elements before merging, and its warp should read whole 32-byte sectors.
  const int most = std::min(block_bits, log2_ceil(count));
  if (g.across) {
    const int sector = std::min(3, log2_ceil(outputs));
    g.depth_bits = std::clamp(log2_floor(std::max<std::int64_t>(1, count / 8)), 0, 3);
    while (g.depth_bits < std::min(most, block_bits - sector) && outputs >> (block_bits - g.depth_bits) < blocks_wanted)
      ++g.depth_bits;
  } else {
    g.depth_bits = std::min(most, std::max(3, log2_floor(std::max<std::int64_t>(1, count / 4))));
    while (g.depth_bits < most && outputs >> (block_bits - g.depth_bits) < blocks_wanted) ++g.depth_bits;
  }
  g.lane_bits = block_bits - g.depth_bits;
  const std::int64_t blocks = (outputs + (1 << g.lane_bits) - 1) >> g.lane_bits;
  g.chunk = count;
  if (blocks > 0 && blocks < blocks_wanted / 2) {
    constexpr std::int64_t least_steps = 16;  // of each thread, to be worth a second kernel
    const std::int64_t splits =
        std::clamp<std::int64_t>(count / (least_steps << g.depth_bits), 1, (blocks_wanted + blocks - 1) / blocks);
    g.chunk = (count + splits - 1) / splits;
    g.splits = count == 0 ? 1 : static_cast<int>((count + g.chunk - 1) / g.chunk);
  }
  return g;
}

DenseReduction dense_reduction(const reduce::Loops& loops) {
  const StridedLoops &kept = loops.kept, &reduced = loops.reduced;
  const DenseReduction other;
  if (reduced.rank() != 1 || kept.rank() > 2 || kept.count() == 0) return other;
  DenseReduction dense;
  dense.count = reduced[0].dim;
  dense.inner = reduced[0].from;
  const bool has_inner = dense.inner > 1;
  if (dense.inner < 1 || kept.rank() < (has_inner ? 1 : 0) || kept.rank() > (has_inner ? 2 : 1)) return other;
  if (has_inner) {
    const StridedLoops::Loop& inner = kept[kept.rank() - 1];
    if (inner.dim != dense.inner || inner.from != 1 || inner.to != 1) return other;
  }
  if (kept.rank() == (has_inner ? 2 : 1)) {
    dense.outer = kept[0].dim;
    if (kept[0].from != dense.count * dense.inner || kept[0].to != dense.inner) return other;
  }
  return dense;
}

ColumnGeometry column_geometry(const DenseReduction& dense, int pack) {
  ColumnGeometry g;
  const std::int64_t columns = dense.outer * dense.inner / pack;
  if (dense.inner % pack != 0 || dense.count == 0 || columns >= Radix::narrow_end) return g;
  g.columns = columns;
  g.stride = dense.inner / pack;
  g.count = g.chunk = dense.count;
  g.inner = FastDivider(static_cast<std::uint32_t>(g.stride));
  constexpr std::int64_t threads_of_a_device = 132 * 1024;  // an H200's, at 64 registers
  if (columns >= threads_of_a_device && dense.count < 64) {
    g.lane_bits = 8;
    return g;
  }
  constexpr std::int64_t enough_blocks = 512, least_to_split = 2048;
  const auto blocks = [&] { return (columns + (1 << g.lane_bits) - 1) >> g.lane_bits; };
  g.lane_bits = 5;
  while (g.lane_bits > 3 && blocks() < enough_blocks) --g.lane_bits;
  if (dense.count >= least_to_split) {
    // At least eight loads per thread, to be worth a second kernel.
    const std::int64_t steps = dense_unroll * (reduce_threads >> g.lane_bits);
    const std::int64_t splits =
        std::clamp<std::int64_t>(dense.count / steps, 1, (enough_blocks + blocks() - 1) / blocks());
    g.chunk = (dense.count + splits - 1) / splits;
    g.splits = static_cast<int>((dense.count + g.chunk - 1) / g.chunk);
  } else {
    // Down to a 32-byte sector, as long as there are elements for the threads set free.
    while (g.lane_bits > 1 && blocks() < enough_blocks && reduce_threads >> g.lane_bits < dense.count) --g.lane_bits;
  }
  return g;
}

std::size_t reduce_workspace_bytes(const reduce::Loops& loops, DType dtype) {
  // The choice between the two depends on addresses, which are not known yet.
  const int pack = dtypes<HalfTypes>.contains(dtype) ? fold_pack<Float16> : fold_pack<float>;
  const ReduceGeometry g = reduce_geometry(loops);
  const ColumnGeometry columns = column_geometry(dense_reduction(loops), pack);
  const std::int64_t partials = std::max(g.splits == 1 ? 0 : g.splits * g.kept.count,
                                         columns.splits == 1 ? 0 : columns.splits * columns.columns * pack);
  return static_cast<std::size_t>(partials) * fold_bytes;
}

void reduce(const Context& context, ReduceKind kind, DType dtype, const reduce::Loops& loops, const void* from,
            void* to, std::byte* workspace) {
  dispatch(dtype, WithHalves<ExtremeTypes>(), [&]<typename T>(std::type_identity<T>) {
    if constexpr (std::is_integral_v<T>)
      reduce_by<IntegerFold<T>>(context, loops, kind, from, to, workspace);
    else if constexpr (is_half<T>)
      reduce::with_fold<float, float>(kind, [&]<typename Fold>(std::type_identity<Fold>, typename Fold::Rule rule) {
        reduce_by<HalfFold<T, Fold>>(context, loops, rule, from, to, workspace);
      });
    else
      reduce::with_fold<T, float>(kind, [&]<typename Fold>(std::type_identity<Fold>, typename Fold::Rule rule) {
        reduce_by<Fold>(context, loops, rule, from, to, workspace);
      });
  });
}

void norms(const Context& context, DType dtype, const reduce::Loops& loops, const void* from, float* to,
           std::byte* workspace) {
  using Squares = reduce::SumFold<float, reduce::Term::square>;
  dispatch(dtype, WithHalves<Types<float>>(), [&]<typename T>(std::type_identity<T>) {
    if constexpr (is_half<T>)
      reduce_by<HalfFold<T, Squares, float>>(context, loops, reduce::Finish::root, from, to, workspace);
    else
      reduce_by<Squares>(context, loops, reduce::Finish::root, from, to, workspace);
  });
}

}  // namespace lenslet::cuda
