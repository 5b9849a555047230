#include "ops/reduce/reduce_cuda.h"

#include <algorithm>
#include <limits>

#include "ops/reduce/reduce_kernel.cuh"

namespace lenslet::cuda {

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

/// What turns a sum into the result.
enum class Finish { none, mean, root, log };
enum class Term { value, square, magnitude };

template <Term term>
struct SumFold {
  using In = float;
  using Out = float;
  using Rule = Finish;
  static constexpr float neutral = 0;
  double sum = 0;

  __device__ explicit SumFold(Rule) {}
  __device__ void add(float x, std::int64_t, Rule) {
    const auto wide = static_cast<double>(x);
    sum += term == Term::square ? wide * wide : term == Term::magnitude ? fabs(wide) : wide;
  }
  __device__ void merge(const SumFold& other, Rule) { sum += other.sum; }
  __device__ float result(std::int64_t count, Rule finish) const {
    if (finish == Finish::mean) return static_cast<float>(sum / static_cast<double>(count));
    if (finish == Finish::root) return static_cast<float>(sqrt(sum));
    return static_cast<float>(finish == Finish::log ? log(sum) : sum);
  }
};

struct NoRule {};

struct ProductFold {
  using In = float;
  using Out = float;
  using Rule = NoRule;
  static constexpr float neutral = 1;
  double product = 1;

  __device__ explicit ProductFold(Rule) {}
  __device__ void add(float x, std::int64_t, Rule) { product *= static_cast<double>(x); }
  __device__ void merge(const ProductFold& other, Rule) { product *= other.product; }
  __device__ float result(std::int64_t, Rule) const { return static_cast<float>(product); }
};

/// NaN wins.
template <bool largest>
struct ExtremeFold {
  using In = float;
  using Out = float;
  using Rule = NoRule;
  static constexpr float neutral = largest ? -infinity : infinity;
  float best = neutral;

  __device__ explicit ExtremeFold(Rule) {}
  __device__ void add(float x, std::int64_t, Rule) {
    if ((largest ? x > best : x < best) || x != x) best = x;
  }
  __device__ void merge(const ExtremeFold& other, Rule rule) { add(other.best, 0, rule); }
  __device__ float result(std::int64_t, Rule) const { return best; }
};

/// The sum is kept relative to the largest element so far. Single precision is enough for the terms: each is at most 1.
struct LogSumExpFold {
  using In = float;
  using Out = float;
  using Rule = NoRule;
  static constexpr float neutral = -infinity;
  double sum = 0;
  float largest = -infinity;

  __device__ explicit LogSumExpFold(Rule) {}
  __device__ void add(float x, std::int64_t, Rule) { join(x, 1); }
  __device__ void merge(const LogSumExpFold& other, Rule) {
    if (other.sum != 0) join(other.largest, other.sum);
  }
  __device__ float result(std::int64_t, Rule) const {
    return sum == 0 ? -infinity : static_cast<float>(log(sum) + static_cast<double>(largest));
  }

 private:
  // Elements of -infinity (or two of +infinity) would give inf - inf.
  __device__ static double scaled(float at, double amount, float most) {
    return at == most ? amount : amount * static_cast<double>(expf(at - most));
  }
  __device__ void join(float at, double amount) {
    const float most = largest < at ? at : largest;
    sum = scaled(largest, sum, most) + scaled(at, amount, most);
    largest = most;
  }
};

/// Integers: the kind is decided at run time, since they are never the load of a network.
template <typename T>
struct IntegerFold {
  using In = T;
  using Out = T;
  using Rule = ReduceKind;
  static constexpr T least = std::numeric_limits<T>::lowest(), most = std::numeric_limits<T>::max();
  std::uint64_t value = 0;

  __device__ explicit IntegerFold(Rule kind) {
    if (kind == ReduceKind::prod) value = 1;
    if (kind == ReduceKind::max) value = static_cast<std::uint64_t>(least);
    if (kind == ReduceKind::min) value = static_cast<std::uint64_t>(most);
  }
  __device__ void add(T x, std::int64_t, Rule kind) {
    const auto wide = static_cast<std::uint64_t>(x);
    if (kind == ReduceKind::sum_square)
      value += wide * wide;
    else if (kind == ReduceKind::l1)
      value += x < 0 ? 0 - wide : wide;
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
    const auto a = static_cast<std::int64_t>(value), b = static_cast<std::int64_t>(other);
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

ReduceGeometry::Loops convert(const StridedLoops& loops) {
  ReduceGeometry::Loops to;
  to.rank = std::max(1, loops.rank());
  for (int i = 0; i < loops.rank(); ++i)
    to.loop[i] = {Radix(std::max<std::int64_t>(1, loops[i].dim)), loops[i].from, loops[i].to};
  to.count = loops.count();
  to.narrow = to.count < Radix::narrow_end;
  return to;
}

int log2_floor(std::int64_t value) {
  int bits = 0;
  while (value >> (bits + 1) != 0) ++bits;
  return bits;
}
int log2_ceil(std::int64_t value) { return value <= 1 ? 0 : log2_floor(value - 1) + 1; }

// Eight blocks of 256 threads for each of an H200's 132 multiprocessors: five run at once, the others even out the end.
constexpr std::int64_t blocks_wanted = 1056;

}  // namespace

ReduceGeometry reduce_geometry(const reduce::Loops& loops) {
  constexpr int block_bits = 8;
  static_assert(1 << block_bits == reduce_threads);
  ReduceGeometry g;
  g.kept = convert(loops.kept);
  g.reduced = convert(loops.reduced);
  const std::int64_t outputs = g.kept.count, count = g.reduced.count;
  g.across = loops.kept.rank() > 0 && loops.kept[loops.kept.rank() - 1].from == 1;
  // A thread should fold some elements before it merges, and read whole 32-byte sectors with its neighbours.
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

ColumnGeometry column_geometry(const DenseReduction& dense) {
  ColumnGeometry g;
  const std::int64_t columns = dense.outer * dense.inner / 4;
  if (dense.inner % 4 != 0 || dense.count == 0 || columns >= Radix::narrow_end) return g;
  g.columns = columns;
  g.stride = dense.inner / 4;
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
    // Eight loads a thread at least, to be worth a second kernel.
    const std::int64_t steps = dense_unroll * (column_threads >> g.lane_bits);
    const std::int64_t splits =
        std::clamp<std::int64_t>(dense.count / steps, 1, (enough_blocks + blocks() - 1) / blocks());
    g.chunk = (dense.count + splits - 1) / splits;
    g.splits = static_cast<int>((dense.count + g.chunk - 1) / g.chunk);
  } else {
    // Down to a sector of 32 bytes, while there are elements for the threads that this sets free.
    while (g.lane_bits > 1 && blocks() < enough_blocks && column_threads >> g.lane_bits < dense.count) --g.lane_bits;
  }
  return g;
}

std::size_t reduce_workspace_bytes(const reduce::Loops& loops) {
  // The addresses decide between the two, and are not known yet.
  const ReduceGeometry g = reduce_geometry(loops);
  const ColumnGeometry columns = column_geometry(dense_reduction(loops));
  const std::int64_t partials = std::max(g.splits == 1 ? 0 : g.splits * g.kept.count,
                                         columns.splits == 1 ? 0 : columns.splits * columns.columns * 4);
  return static_cast<std::size_t>(partials) * fold_bytes;
}

void reduce(const Context& context, ReduceKind kind, DType dtype, const reduce::Loops& loops, const void* from,
            void* to, std::byte* workspace) {
  if (dtype == DType::i32) return reduce_by<IntegerFold<std::int32_t>>(context, loops, kind, from, to, workspace);
  if (dtype == DType::i64) return reduce_by<IntegerFold<std::int64_t>>(context, loops, kind, from, to, workspace);
  switch (kind) {
    case ReduceKind::sum:
      return reduce_by<SumFold<Term::value>>(context, loops, Finish::none, from, to, workspace);
    case ReduceKind::mean:
      return reduce_by<SumFold<Term::value>>(context, loops, Finish::mean, from, to, workspace);
    case ReduceKind::log_sum:
      return reduce_by<SumFold<Term::value>>(context, loops, Finish::log, from, to, workspace);
    case ReduceKind::sum_square:
      return reduce_by<SumFold<Term::square>>(context, loops, Finish::none, from, to, workspace);
    case ReduceKind::l2:
      return reduce_by<SumFold<Term::square>>(context, loops, Finish::root, from, to, workspace);
    case ReduceKind::l1:
      return reduce_by<SumFold<Term::magnitude>>(context, loops, Finish::none, from, to, workspace);
    case ReduceKind::max:
      return reduce_by<ExtremeFold<true>>(context, loops, {}, from, to, workspace);
    case ReduceKind::min:
      return reduce_by<ExtremeFold<false>>(context, loops, {}, from, to, workspace);
    case ReduceKind::prod:
      return reduce_by<ProductFold>(context, loops, {}, from, to, workspace);
    case ReduceKind::log_sum_exp:
      return reduce_by<LogSumExpFold>(context, loops, {}, from, to, workspace);
  }
}

}  // namespace lenslet::cuda
