#include "ops/reduce/reduction.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>

#include "base/convert.h"
#include "base/cuda_built.h"
#include "ops/core/shape_args.h"
#include "ops/reduce/reduce_cuda.h"
#include "ops/reduce/row_kernels.h"

namespace lenslet::reduce {

Shape Axes::output(const Shape& x) const {
  AxisInts dims;
  for (int i = 0; i < x.rank(); ++i) {
    const bool gone = reduced[static_cast<std::size_t>(i)];
    if (!gone || keep_dims) dims.values[static_cast<std::size_t>(dims.size++)] = gone ? 1 : x[i];
  }
  return Shape(dims.span());
}

AxisMap Axes::map(std::size_t inputs, int rank) const {
  AxisMap map = axes_kept(inputs, {});
  std::size_t to = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(rank); ++i) {
    if (!reduced[i]) map.inputs[0].axis[to] = static_cast<std::int8_t>(i);
    if (!reduced[i] || keep_dims) ++to;
  }
  return map;
}

Loops Axes::loops(const Binding& binding) const {
  const Shape& x = binding.shape(0);
  const auto from = element_strides(x, binding.format(0));
  const auto to = element_strides(binding.output_shape(), binding.output_format());
  const auto order = memory_order(x.rank(), binding.format(0));
  const AxisMap followed = map(1, x.rank());
  Loops loops;
  for (int i = 0; i < x.rank(); ++i) {
    const auto axis = static_cast<std::size_t>(order[static_cast<std::size_t>(i)]);
    const std::int64_t dim = x[static_cast<int>(axis)];
    if (reduced[axis])
      loops.reduced.add(dim, from[axis], 0);
    else
      loops.kept.add(dim, from[axis],
                     to[static_cast<std::size_t>(followed.inputs[0].follower(static_cast<int>(axis)))]);
  }
  return loops;
}

namespace {

/// A vectorised Fold of contiguous floats.
template <Term term>
SumFold<float, term> fold_row(std::type_identity<SumFold<float, term>>, const float* x, std::int64_t n) {
  SumFold<float, term> fold;
  fold.sum = row_sum(x, n, term);
  return fold;
}
template <bool largest>
ExtremeFold<float, largest> fold_row(std::type_identity<ExtremeFold<float, largest>>, const float* x, std::int64_t n) {
  ExtremeFold<float, largest> fold;
  fold.best = row_extreme(x, n, largest);
  return fold;
}

template <typename Exponent>
LogSumExpFold<float, Exponent> fold_row(std::type_identity<LogSumExpFold<float, Exponent>>, const float* x,
                                        std::int64_t n) {
  LogSumExpFold<float, Exponent> fold;
  if (const float top = row_extreme(x, n, true); std::isfinite(top)) {
    fold.largest = top;
    fold.sum = row_exp_sum(x, n, top);
  } else {
    for (std::int64_t i = 0; i < n; ++i) fold.add(x[i], i, {});
  }
  return fold;
}

template <typename Fold>
inline constexpr bool is_float_sum = false;
template <Term term>
inline constexpr bool is_float_sum<SumFold<float, term>> = true;
bool sums_floats(ReduceKind kind) {
  bool is = false;
  with_fold<float, double>(kind, [&]<typename Fold>(std::type_identity<Fold>, auto) { is = is_float_sum<Fold>; });
  return is;
}

template <typename Fold>
inline constexpr bool is_float_extreme = false;
template <bool largest>
inline constexpr bool is_float_extreme<ExtremeFold<float, largest>> = true;

/// Reduces short contiguous rows of float32, several at a time.
class BoundShortRows final : public BoundKernel {
 public:
  static bool serves(ReduceKind kind, DType dtype, const Loops& loops) {
    constexpr std::int64_t longest = 64;
    const ReducedRows rows(loops.reduced);
    const bool dense = loops.kept.rank() == 1 && loops.kept[0].from == rows.count && loops.kept[0].to == 1;
    return dtype == DType::f32 && (sums_floats(kind) || kind == ReduceKind::max || kind == ReduceKind::min) && dense &&
           rows.count == rows.row.dim && rows.row.from == 1 && rows.count > 1 && rows.count <= longest;
  }
  BoundShortRows(ReduceKind kind, const Loops& loops)
      : kind_(kind), rows_(loops.kept.count()), length_(loops.reduced.count()) {}

  void run(const KernelRun& run) const override {
    with_fold<float, double>(kind_, [&]<typename Fold>(std::type_identity<Fold>, typename Fold::Rule rule) {
      run.pool->parallel_for(rows_, std::max<std::int64_t>(1, elementwise_grain / length_),
                             [&](std::int64_t begin, std::int64_t end, int) {
                               const float* const x = run.in<float>(0) + begin * length_;
                               fold_rows<Fold>(x, end - begin, rule, run.out<float>() + begin);
                             });
    });
  }

 private:
  template <typename Fold>
  void fold_rows(const float* x, std::int64_t rows, typename Fold::Rule rule, float* y) const {
    if constexpr (is_float_extreme<Fold>) {
      short_row_extremes(x, length_, rows, kind_ == ReduceKind::max, y);
    } else if constexpr (is_float_sum<Fold>) {
      constexpr std::int64_t at_once = 256;
      std::array<double, at_once> sums;
      for (std::int64_t first = 0; first < rows; first += at_once) {
        const std::int64_t count = std::min(at_once, rows - first);
        short_row_sums(x + first * length_, length_, count, Fold::summed, sums.data());
        Fold fold;
        for (std::int64_t i = 0; i < count; ++i) {
          fold.sum = sums[static_cast<std::size_t>(i)];
          y[first + i] = fold.result(length_, rule);
        }
      }
    }
  }

  ReduceKind kind_;
  std::int64_t rows_, length_;
};

/// Reduces contiguous float32. Rows are split by their length alone, so that results do not depend on the threads.
class BoundRows final : public BoundKernel {
 public:
  static bool serves(ReduceKind kind, DType dtype, const Loops& loops) {
    // Vectors do not pay below this: 49 floats take 19 ns, as interleaved doubles 12.
    const std::int64_t least = sums_floats(kind) ? 64 : 8;
    if (dtype != DType::f32 || kind == ReduceKind::prod) return false;
    const ReducedRows rows(loops.reduced);
    return contiguous_loop(loops.kept) < 0 && rows.count > 0 && rows.row.from == 1 && rows.row.dim >= least;
  }
  BoundRows(ReduceKind kind, const Loops& loops) : kind_(kind), loops_(loops), rows_(loops.reduced) {}

  std::size_t workspace_bytes() const override {
    return pieces() == 1 ? 0 : static_cast<std::size_t>(loops_.kept.count() * pieces()) * part_bytes;
  }
  void run(const KernelRun& run) const override {
    with_fold<float, double>(kind_, [&]<typename Fold>(std::type_identity<Fold> type, typename Fold::Rule rule) {
      if constexpr (requires { fold_row(type, run.in<float>(0), 0); }) fold_rows<Fold>(run, rule);
    });
  }

 private:
  static constexpr std::int64_t most = 4 * elementwise_grain;
  static constexpr std::size_t part_bytes = 2 * sizeof(double);
  std::int64_t pieces() const { return rows_.count == rows_.row.dim ? (rows_.count + most - 1) / most : 1; }

  template <typename Fold>
  void fold_rows(const KernelRun& run, typename Fold::Rule rule) const {
    static_assert(sizeof(Fold) <= part_bytes);
    const float* const x = run.in<float>(0);
    auto* const y = run.out<float>();
    auto* const parts = reinterpret_cast<Fold*>(run.workspace.data());
    const std::int64_t pieces = this->pieces(), of_piece = std::min(most, rows_.row.dim);
    const auto fold = [&](const float* row, std::int64_t n) { return fold_row(std::type_identity<Fold>(), row, n); };
    run.pool->parallel_for(
        loops_.kept.count() * pieces, std::max<std::int64_t>(1, elementwise_grain / rows_.count),
        [&](std::int64_t begin, std::int64_t end, int) {
          if (pieces > 1) {
            for (std::int64_t unit = begin; unit < end; ++unit) {
              const LoopCursor at(loops_.kept, unit / pieces);
              const std::int64_t first = unit % pieces * of_piece;
              parts[unit] = fold(x + at.from + first, std::min(of_piece, rows_.count - first));
            }
            return;
          }
          LoopCursor at(loops_.kept, begin);
          for (std::int64_t unit = begin; unit < end; ++unit, at.next()) {
            Fold whole(rule);
            rows_.for_each([&](std::int64_t first) { whole.merge(fold(x + at.from + first, rows_.row.dim), rule); });
            y[at.to] = whole.result(rows_.count, rule);
          }
        });
    if (pieces == 1) return;
    LoopCursor at(loops_.kept);
    for (std::int64_t unit = 0; unit < loops_.kept.count(); ++unit, at.next()) {
      Fold whole(rule);
      for (std::int64_t piece = 0; piece < pieces; ++piece) whole.merge(parts[unit * pieces + piece], rule);
      y[at.to] = whole.result(rows_.count, rule);
    }
  }

  ReduceKind kind_;
  Loops loops_;
  ReducedRows rows_;
};

/// Sums with contiguous kept elements, float32 or (means alone) bfloat16, row by row, in parts that depend only on the
/// number of rows, so that results do not depend on the threads. A thread takes parts of rows, not columns: it wrote
/// those rows in the previous step, while half of its columns are in another core's cache (two threads were no faster
/// than one).
template <typename T>
class BoundColumnSums final : public BoundKernel {
 public:
  static bool serves(ReduceKind kind, DType dtype, const Loops& loops) {
    const int lane = contiguous_loop(loops.kept);
    return sums_floats(kind) && dtype == dtype_of<T>::value && lane >= 0 && loops.kept[lane].dim >= line;
  }
  BoundColumnSums(ReduceKind kind, const Loops& loops)
      : kind_(kind), kept_(loops.kept), lane_(take_lane(kept_)), rows_(loops.reduced) {}

  std::size_t workspace_bytes() const override {
    return parts() == 1 ? 0 : static_cast<std::size_t>(kept_.count() * lane_.dim * parts()) * sizeof(double);
  }
  void run(const KernelRun& run) const override {
    with_fold<float, double>(kind_, [&]<typename Fold>(std::type_identity<Fold>, typename Fold::Rule rule) {
      if constexpr (is_float_sum<Fold>) sum_columns<Fold>(run, rule);
    });
  }

 private:
  static constexpr std::int64_t line = 16;     // floats of a cache line: the narrowest strip
  static constexpr std::int64_t widest = 512;  // so long a piece of each row that it is fetched ahead
  static constexpr std::int64_t at_once = 8;   // rows that are added to sums in registers, each a stream of its own
  static constexpr std::int64_t rows_of_part = 48, most_parts = 8;

  std::int64_t parts() const {
    return rows_.count == rows_.row.dim ? std::clamp<std::int64_t>(rows_.count / rows_of_part, 1, most_parts) : 1;
  }

  template <typename Fold>
  void sum_columns(const KernelRun& run, Finish finish) const {
    const T* const x = run.in<T>(0);
    auto* const y = run.out<T>();
    auto* const sums_of_parts = reinterpret_cast<double*>(run.workspace.data());
    const std::int64_t threads = run.pool->threads(), parts = this->parts();
    const std::int64_t share = lane_.dim * kept_.count() / (threads == 1 || parts > 1 ? 1 : 2 * threads);
    const std::int64_t width = std::clamp(share / line * line, line, widest);
    const std::int64_t strips = (lane_.dim + width - 1) / width, units = parts * strips;
    const std::int64_t grain =
        std::max<std::int64_t>(1, elementwise_grain / std::max<std::int64_t>(1, rows_.count / parts * width));
    const auto finished = [&](double sum) {
      Fold fold;
      fold.sum = sum;
      return convert<T>(fold.result(rows_.count, finish));
    };
    run.pool->parallel_for(kept_.count() * units, grain, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t unit = begin; unit < end; ++unit) {
        const std::int64_t kept = unit / units, part = unit % units / strips;
        const LoopCursor at(kept_, kept);
        const std::int64_t left = unit % strips * width, here = std::min(width, lane_.dim - left);
        const std::int64_t top = rows_.row.dim * part / parts, bottom = rows_.row.dim * (part + 1) / parts;
        std::array<double, widest> sums;
        std::fill_n(sums.begin(), here, 0.0);
        rows_.for_each([&](std::int64_t first) {
          for (std::int64_t i = top; i < bottom; i += at_once)
            add_rows(x + at.from + left + first + i * rows_.row.from, rows_.row.from, std::min(at_once, bottom - i),
                     here, sums.data(), Fold::summed);
        });
        if (parts > 1)
          std::copy_n(sums.begin(), here, sums_of_parts + (kept * parts + part) * lane_.dim + left);
        else
          for (std::int64_t j = 0; j < here; ++j)
            y[at.to + (left + j) * lane_.to] = finished(sums[static_cast<std::size_t>(j)]);
      }
    });
    if (parts == 1) return;
    const std::int64_t merge_grain = std::max<std::int64_t>(1, elementwise_grain / (parts * lane_.dim));
    run.pool->parallel_for(kept_.count(), merge_grain, [&](std::int64_t begin, std::int64_t end, int) {
      LoopCursor at(kept_, begin);
      for (std::int64_t kept = begin; kept < end; ++kept, at.next()) {
        for (std::int64_t j = 0; j < lane_.dim; ++j) {
          const double* const of_parts = sums_of_parts + kept * parts * lane_.dim + j;
          double sum = of_parts[0];
          for (std::int64_t part = 1; part < parts; ++part) sum += of_parts[part * lane_.dim];
          y[at.to + j * lane_.to] = finished(sum);
        }
      }
    });
  }

  ReduceKind kind_;
  StridedLoops kept_;
  StridedLoops::Loop lane_;
  ReducedRows rows_;
};

}  // namespace

std::optional<std::string> refuse_brain(ReduceKind kind, int rank, const Axes& axes) {
  constexpr std::array planes{false, false, true, true};
  if (kind == ReduceKind::mean && rank == 4 && std::equal(planes.begin(), planes.end(), axes.reduced.begin()))
    return std::nullopt;
  return "bfloat16 (supported: means of images' planes)";
}

std::unique_ptr<const BoundKernel> on_cpu(ReduceKind kind, DType dtype, const Loops& loops) {
  if (BoundShortRows::serves(kind, dtype, loops)) return std::make_unique<BoundShortRows>(kind, loops);
  if (BoundRows::serves(kind, dtype, loops)) return std::make_unique<BoundRows>(kind, loops);
  if (BoundColumnSums<float>::serves(kind, dtype, loops)) return std::make_unique<BoundColumnSums<float>>(kind, loops);
  if (dtype == DType::bf16) return std::make_unique<BoundColumnSums<BFloat16>>(kind, loops);
  return bound([=](const KernelRun& run) {
    dispatch(dtype, ExtremeTypes(), [&]<typename T>(std::type_identity<T>) {
      const auto run_fold = [&]<typename Fold>(std::type_identity<Fold>, typename Fold::Rule rule) {
        reduce::run<Fold>(loops, rule, run.in<T>(0), run.out<T>(), *run.pool);
      };
      if constexpr (lists<ReduceTypes, T>)
        with_fold<T, double>(kind, run_fold);
      else if (kind == ReduceKind::max)
        run_fold(std::type_identity<ExtremeFold<T, true>>(), NoRule());
      else
        run_fold(std::type_identity<ExtremeFold<T, false>>(), NoRule());
    });
  });
}

std::unique_ptr<const BoundKernel> on_cuda(ReduceKind kind, DType dtype, const Loops& loops) {
  if constexpr (cuda_built)
    return bound(
        [=](const KernelRun& run) {
          cuda::reduce(*run.cuda, kind, dtype, loops, run.inputs[0].data(), run.outputs[0].data(),
                       run.workspace.data());
        },
        cuda::reduce_workspace_bytes(loops, dtype));
  return nullptr;
}

}  // namespace lenslet::reduce
