// TopK: the largest or smallest elements along one axis, in order, with positions; the first of equals. NaN beats all
// numbers either way, as in ArgMax and ArgMin.

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "base/cuda_built.h"
#include "ops/core/checks.h"
#include "ops/core/grain.h"
#include "ops/core/kernel.h"
#include "ops/core/shape_args.h"
#include "ops/reduce/top_k_cuda.h"

namespace lenslet {

namespace {

class TopK final : public Op {
 public:
  explicit TopK(const NodeSpec& spec) : outputs_(spec.outputs) {
    AttributeReader reader(spec);
    axis_ = reader.integer("axis", -1);
    if (spec.normalised ? reader.has("k") : spec.before(10)) k_ = reader.required_integer("k");
    largest_ = spec.before(11) || reader.flag("largest", true);
    if (!spec.before(11)) reader.ignore("sorted");  // without it any order will do
    reader.finish();
  }

  std::string_view type() const override { return "TopK"; }
  AttributeList attributes() const override {
    AttributeList list{{"axis", axis_}, {"largest", std::int64_t{largest_}}};
    if (k_) list.emplace_back("k", *k_);
    return list;
  }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& x = required_input(inputs, 0, "X");
    const int along = resolve_axis(axis_, x.shape.rank());
    std::int64_t k = k_.value_or(0);
    if (!k_) {
      const AxisInts ints = required_axis_ints(inputs, 1, "K");
      if (ints.size != 1)
        throw Error(ErrorKind::invalid_model, fmt::format("K has {} elements, expected one", ints.size));
      k = ints[0];
    }
    if (k < 0 || k > x.shape[along])
      throw Error(ErrorKind::invalid_model, fmt::format("K={} of axis {} of {}", k, along, x.shape.str()));
    const Shape y = x.shape.with(along, k);
    std::vector<TensorType> types{{x.dtype, y}};
    if (outputs_ > 1) types.push_back({DType::i64, y});
    return types;
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape& y) const override {
    return axes_kept_if(inputs.size(), y.rank(), [along = resolve_axis(axis_, y.rank())](int a) { return a != along; });
  }

  TopKShape shape(const Shape& x, const Shape& y) const {
    const int along = resolve_axis(axis_, x.rank());
    TopKShape shape{.length = x[along], .k = y[along], .largest = largest_};
    for (int i = 0; i < x.rank(); ++i)
      if (i != along) (i < along ? shape.outer : shape.inner) *= x[i];
    return shape;
  }

 private:
  std::size_t outputs_;
  std::int64_t axis_ = -1;
  std::optional<std::int64_t> k_;  ///< none: the second input
  bool largest_ = true;
};

struct Taken {
  std::uint64_t key;
  std::int64_t position;
  friend auto operator<=>(const Taken&, const Taken&) = default;
};

TopKShape shape_of(const Binding& binding) {
  return binding.op<TopK>().shape(binding.shape(0), binding.output_shape());
}

class BoundTopK final : public BoundKernel {
 public:
  explicit BoundTopK(const Binding& binding)
      : shape_(shape_of(binding)),
        slots_(shape_.k * 4 > shape_.length ? shape_.length : shape_.k),
        lanes_(std::clamp<std::int64_t>(most_slots / std::max<std::int64_t>(slots_, 1), 1,
                                        std::clamp<std::int64_t>(shape_.inner, 1, most_lanes))),
        threads_(binding.threads()) {}

  std::size_t workspace_bytes() const override {
    return static_cast<std::size_t>(slots_ * lanes_ * threads_) * sizeof(Taken);
  }

  void run(const KernelRun& run) const override {
    if (run.outputs[0].elems() == 0) return;
    const std::int64_t strips = (shape_.inner + lanes_ - 1) / lanes_;
    dispatch(run.inputs[0].dtype(), TopKTypes(), [&]<typename T>(std::type_identity<T>) {
      run.pool->parallel_for(shape_.outer * strips,
                             std::max<std::int64_t>(1, elementwise_grain / 4 / (shape_.length * lanes_)),
                             [&](std::int64_t begin, std::int64_t end, int worker) {
                               auto* slots = reinterpret_cast<Taken*>(run.workspace.data()) + worker * slots_ * lanes_;
                               for (std::int64_t unit = begin; unit < end; ++unit)
                                 take<T>(run, unit / strips, unit % strips * lanes_, slots);
                             });
    });
  }

 private:
  // Adjacent lines together, so that memory is read in order, while their candidates fit L2.
  static constexpr std::int64_t most_lanes = 16, most_slots = 1 << 14;
  // Elements of a single line that are compared at once with the last of the best.
  static constexpr std::int64_t together = 32;

  /// True if none of x[0, count) comes before `bound` (or with `inclusive` equals it). False if unknown.
  template <typename T>
  static bool none_beyond(const T* x, std::int64_t count, T bound, bool inclusive, bool largest) {
    if (count != together) return false;
    const auto none = [&](auto stays_behind) {
      std::int32_t beyond = 0;  // counted to the end: g++ makes vectors of that
      for (std::int64_t i = 0; i < together; ++i) beyond += stays_behind(x[i], bound) ? 0 : 1;
      return beyond == 0;
    };
    if (inclusive) return largest ? none(std::less<T>()) : none(std::greater<T>());
    return largest ? none(std::less_equal<T>()) : none(std::greater_equal<T>());
  }

  /// A bound that the k best of x[0, length) reach: the k-th best among the bests of each 32nd. k <= 32 <= length.
  template <typename T>
  static T reached_by_best(const T* x, std::int64_t length, std::int64_t k, bool largest) {
    T best[together];
    std::copy(x, x + together, best);
    const auto keep = [&](auto better) {
      for (std::int64_t i = together; i + together <= length; i += together)
        for (std::int64_t j = 0; j < together; ++j) best[j] = better(x[i + j], best[j]) ? x[i + j] : best[j];
    };
    largest ? keep(std::greater<T>()) : keep(std::less<T>());
    std::nth_element(best, best + k - 1, best + together,
                     [&](T a, T b) { return top_key(a, largest) < top_key(b, largest); });
    return best[k - 1];
  }

  /// The k best of a single line, as a heap with the worst on top.
  template <typename T>
  void take_line(const T* x, Taken* heap) const {
    const auto [outer, length, inner, k, largest] = shape_;
    T bound{};
    Taken beyond_bound{0, 0};  // gives way to whatever reaches the bound
    if (k <= together / 2 && length >= 4 * together) {
      bound = reached_by_best(x, length, k, largest);
      beyond_bound.key = top_key(bound, largest) + 1;
    }
    std::int64_t begin = 0;
    if (beyond_bound.key != 0) {
      std::fill(heap, heap + k, beyond_bound);
    } else {
      for (; begin < k; ++begin) heap[begin] = {top_key(x[begin], largest), begin};
      std::make_heap(heap, heap + k);
    }
    for (std::int64_t end = 0; begin < length; begin = end) {
      end = std::min(begin + together, length);
      const bool inclusive = heap->key == beyond_bound.key;
      if (none_beyond(x + begin, end - begin, inclusive ? bound : x[heap->position], inclusive, largest)) continue;
      for (std::int64_t i = begin; i < end; ++i) replace_last(heap, {top_key(x[i], largest), i});
    }
  }

  void replace_last(Taken* heap, Taken next) const {
    if (next.key >= heap->key) return;  // later equals do not count
    std::pop_heap(heap, heap + shape_.k);
    heap[shape_.k - 1] = next;
    std::push_heap(heap, heap + shape_.k);
  }

  template <typename T>
  void take(const KernelRun& run, std::int64_t outer, std::int64_t first, Taken* slots) const {
    const auto [outer_count, length, inner, k, largest] = shape_;
    const std::int64_t width = std::min(lanes_, inner - first);
    const T* x = run.in<T>(0) + outer * length * inner + first;
    const auto candidate = [&, step = inner, down = largest](std::int64_t i, std::int64_t lane) {
      return Taken{top_key(x[i * step + lane], down), i};
    };
    if (slots_ < length && inner == 1) {
      take_line(x, slots);
    } else {
      for (std::int64_t i = 0; i < slots_; ++i)
        for (std::int64_t lane = 0; lane < width; ++lane) slots[lane * slots_ + i] = candidate(i, lane);
      if (slots_ < length)
        for (std::int64_t lane = 0; lane < width; ++lane) std::make_heap(slots + lane * k, slots + (lane + 1) * k);
      for (std::int64_t i = slots_; i < length; ++i)
        for (std::int64_t lane = 0; lane < width; ++lane) replace_last(slots + lane * k, candidate(i, lane));
    }
    T* values = run.out<T>() + outer * k * inner + first;
    auto* positions = run.out<std::int64_t>(1);
    if (positions != nullptr) positions += outer * k * inner + first;
    for (std::int64_t lane = 0; lane < width; ++lane) {
      Taken* best = slots + lane * slots_;
      if (k < slots_) std::nth_element(best, best + k, best + slots_);
      std::sort(best, best + k);
      for (std::int64_t i = 0; i < k; ++i) {
        values[i * inner + lane] = x[best[i].position * inner + lane];
        if (positions != nullptr) positions[i * inner + lane] = best[i].position;
      }
    }
  }

  TopKShape shape_;
  std::int64_t slots_;  ///< candidates of a line: all its elements, or the k best
  std::int64_t lanes_;  ///< lines that go together
  std::int64_t threads_;
};

std::unique_ptr<const BoundKernel> bind_cuda(const Binding& binding) {
  if constexpr (cuda_built)
    return bound(
        [shape = shape_of(binding)](const KernelRun& run) {
          cuda::top_k(*run.cuda, run.inputs[0].dtype(), shape, run.inputs[0].data(), run.outputs[0].data(),
                      run.out<std::int64_t>(1), run.workspace.data());
        },
        cuda::top_k_workspace_bytes(shape_of(binding)));
  return nullptr;
}

std::optional<std::string> refuse_cuda(const Problem& problem) {
  const TopKShape shape = problem.as<TopK>().shape(problem.shape(0), problem.output_shape());
  if (std::max(shape.length, shape.outer * shape.inner) <= cuda::max_top_k_length) return std::nullopt;
  return "an axis, or lines along it, beyond 2^31 - 1024";
}

constexpr auto kernels =
    on_both({.types = dtypes<TopKTypes>, .reads = input_bit(0)}, bind<BoundTopK>, bind_cuda, refuse_cuda);

}  // namespace

OpParts top_k() { return {make_from<TopK>, kernels}; }

}  // namespace lenslet
