// ArgMax and ArgMin: index of the largest or smallest element along one axis, the first or last of equals. NaN beats
// all numbers in both, as in NumPy.

#include <array>
#include <type_traits>

#include "base/cuda_built.h"
#include "ops/core/checks.h"
#include "ops/reduce/beats.h"
#include "ops/reduce/reduce_cuda.h"
#include "ops/reduce/reduction.h"
#include "ops/reduce/row_kernels.h"

namespace lenslet {

namespace {

class ArgExtreme final : public Op {
 public:
  bool largest = true;
  std::int64_t axis = 0;
  bool keep_dims = true;
  bool last = false;

  std::string_view type() const override { return largest ? "ArgMax" : "ArgMin"; }
  AttributeList attributes() const override {
    return {{"axis", axis}, {"keepdims", std::int64_t{keep_dims}}, {"select_last_index", std::int64_t{last}}};
  }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const Shape& data = required_input(inputs, 0, "data").shape;
    if (data[resolve_axis(axis, data.rank())] == 0)
      throw Error(ErrorKind::invalid_model, "no element to choose from in " + data.str());
    return {{DType::i64, resolve(data.rank()).output(data)}};
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape&) const override {
    const int rank = inputs[0].type.shape.rank();
    return resolve(rank).map(inputs.size(), rank);
  }

  reduce::Axes resolve(int rank) const {
    reduce::Axes axes{{}, keep_dims};
    axes.reduced[static_cast<std::size_t>(resolve_axis(axis, rank))] = true;
    return axes;
  }
};

/// Does `x` replace the earlier `best`?
template <bool largest, bool last>
struct Replaces {
  static constexpr bool takes_first = !last, takes_largest = largest;
  template <typename T>
  bool operator()(T x, T best) const {
    if constexpr (last) return !(largest ? x < best : x > best) && (best == best || x != x);
    return beats<largest>(x, best);
  }
};

// Outputs adjacent in the input are searched together, so that rows are read in order.
template <typename T, typename Replaces>
void search(const reduce::Loops& loops, Replaces replaces, const KernelRun& run) {
  StridedLoops kept = loops.kept;
  const StridedLoops::Loop lane = reduce::take_lane(kept), along = reduce::ReducedRows(loops.reduced).row;
  const std::int64_t blocks = (lane.dim + reduce::lanes - 1) / reduce::lanes;
  const auto* from = run.in<T>(0);
  auto* to = run.out<std::int64_t>();
  const std::int64_t unit_elems = std::max<std::int64_t>(1, along.dim * std::min(reduce::lanes, lane.dim));
  const std::int64_t grain = std::max<std::int64_t>(1, elementwise_grain / unit_elems);
  if constexpr (std::is_same_v<T, float> && Replaces::takes_first)
    if (lane.dim == 1 && along.from == 1)
      return run.pool->parallel_for(kept.count(), grain, [&](std::int64_t begin, std::int64_t end, int) {
        LoopCursor at(kept, begin);
        for (std::int64_t row = begin; row < end; ++row, at.next())
          to[at.to] = reduce::row_arg_extreme(from + at.from, along.dim, Replaces::takes_largest);
      });
  run.pool->parallel_for(kept.count() * blocks, grain, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t unit = begin; unit < end; ++unit) {
      const LoopCursor at(kept, unit / blocks);
      const std::int64_t first = unit % blocks * reduce::lanes;
      const std::int64_t width = std::min(reduce::lanes, lane.dim - first);
      std::array<T, reduce::lanes> best{};
      std::array<std::int64_t, reduce::lanes> where{};
      const T* row = from + at.from + first;
      std::copy_n(row, width, best.begin());
      for (std::int64_t i = 1; i < along.dim; ++i) {
        row += along.from;
        for (std::int64_t j = 0; j < width; ++j) {
          const auto lane_index = static_cast<std::size_t>(j);
          if (!replaces(row[j], best[lane_index])) continue;
          best[lane_index] = row[j];
          where[lane_index] = i;
        }
      }
      for (std::int64_t j = 0; j < width; ++j) to[at.to + (first + j) * lane.to] = where[static_cast<std::size_t>(j)];
    }
  });
}

reduce::Loops loops_of(const Binding& binding) {
  return binding.op<ArgExtreme>().resolve(binding.shape(0).rank()).loops(binding);
}

std::unique_ptr<const BoundKernel> bind_cpu(const Binding& binding) {
  return bound([op = binding.op<ArgExtreme>(), loops = loops_of(binding)](const KernelRun& run) {
    dispatch(run.inputs[0].dtype(), ArgTypes(), [&]<typename T>(std::type_identity<T>) {
      if (op.largest && op.last) return search<T>(loops, Replaces<true, true>(), run);
      if (op.largest) return search<T>(loops, Replaces<true, false>(), run);
      if (op.last) return search<T>(loops, Replaces<false, true>(), run);
      search<T>(loops, Replaces<false, false>(), run);
    });
  });
}

std::unique_ptr<const BoundKernel> bind_cuda(const Binding& binding) {
  if constexpr (cuda_built) {
    const reduce::Loops loops = loops_of(binding);
    const auto run_on = [loops, op = binding.op<ArgExtreme>()](const KernelRun& run) {
      cuda::arg_extreme(*run.cuda, op.largest, op.last, run.inputs[0].dtype(), loops, run.inputs[0].data(),
                        run.out<std::int64_t>(), run.workspace.data());
    };
    return bound(run_on, cuda::reduce_workspace_bytes(loops));
  }
  return nullptr;
}

constexpr auto kernels = on_both({.types = dtypes<ArgTypes>, .formats = nchw_or_nhwc}, bind_cpu, bind_cuda);

std::shared_ptr<const Op> make(const NodeSpec& spec) {
  auto op = std::make_shared<ArgExtreme>();
  AttributeReader reader(spec);
  op->largest = spec.name == "ArgMax";
  op->axis = reader.integer("axis", 0);
  op->keep_dims = reader.flag("keepdims", true);
  op->last = !spec.before(12) && reader.flag("select_last_index", false);
  reader.finish();
  return op;
}

}  // namespace

OpParts arg_extreme() { return {make, kernels}; }

}  // namespace lenslet
