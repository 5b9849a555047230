// ScatterElements (before opset 11: Scatter) and ScatterND: data with some elements replaced by or combined with
// updates. Updates of the same element apply in index order: the last one replaces.

#include <fmt/format.h>

#include <algorithm>

#include "base/cuda_built.h"
#include "ops/core/checks.h"
#include "ops/core/grain.h"
#include "ops/core/sum_tolerance.h"
#include "ops/movement/index_walk.h"
#include "ops/movement/index_walk_cuda.h"
#include "ops/movement/moves.h"

namespace lenslet {

namespace {

using Loop = StridedLoops::Loop;

constexpr std::string_view kind_names[] = {"none", "add", "mul", "max", "min"};  // by ScatterKind
constexpr std::size_t data_input = 0, indices_input = 1, updates_input = 2;

/// Tuples of `chain` at one position of the walk may name the same elements; tuples at different positions do not.
struct ScatterWalk {
  IndexWalk walk;
  Loop chain;
};

class ScatterOp : public Op {
 public:
  AttributeList attributes() const override {
    return {{"reduction", std::string(kind_names[static_cast<std::size_t>(kind_)])}};
  }
  ScatterKind kind() const { return kind_; }
  /// All tuples in one walk.
  virtual IndexWalk walk(const Shape& data, const Shape& indices) const = 0;
  virtual ScatterWalk chained(const Shape& data, const Shape& indices) const = 0;

 protected:
  /// `since`: the version that added add and mul; max and min came with 18.
  void read_kind(AttributeReader& reader, const NodeSpec& spec, std::int64_t since) {
    const std::string name = spec.before(since) ? "none" : reader.text("reduction", "none");
    const auto found = std::find(std::begin(kind_names), std::end(kind_names), name);
    if (found == std::end(kind_names))
      throw Error(ErrorKind::invalid_model, fmt::format("attribute reduction is \"{}\"", name));
    kind_ = static_cast<ScatterKind>(found - std::begin(kind_names));
  }
  static void check_inputs(std::span<const InputInfo> inputs) {
    const TensorType& data = required_input(inputs, data_input, "data");
    require_dtype("indices", required_input(inputs, indices_input, "indices").dtype, {DType::i64, DType::i32});
    const TensorType& updates = required_input(inputs, updates_input, "updates");
    if (updates.dtype != data.dtype)
      throw Error(ErrorKind::invalid_model,
                  fmt::format("updates of {} for data of {}", to_string(updates.dtype), to_string(data.dtype)));
  }

 private:
  ScatterKind kind_ = ScatterKind::none;
};

class ScatterElements final : public ScatterOp {
 public:
  explicit ScatterElements(const NodeSpec& spec) : deprecated_(spec.name == "Scatter") {
    AttributeReader reader(spec);
    axis_ = reader.integer("axis", 0);
    if (!deprecated_) read_kind(reader, spec, 16);
    reader.finish();
  }

  std::string_view type() const override { return deprecated_ ? "Scatter" : "ScatterElements"; }
  AttributeList attributes() const override {
    AttributeList list{{"axis", axis_}};
    if (!deprecated_) list.push_back(ScatterOp::attributes()[0]);
    return list;
  }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    check_inputs(inputs);
    const TensorType& data = inputs[data_input].type;
    const Shape& indices = inputs[indices_input].type.shape;
    require_index_per_element(data.shape, indices, resolve_axis(axis_, data.shape.rank()));
    require_shape("updates", inputs[updates_input].type.shape, indices);
    return {data};
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape& y) const override {
    const Shape& indices = inputs[indices_input].type.shape;
    const int written = resolve_axis(axis_, y.rank());
    // Checked for one image: too few for more images would go unnoticed, since fewer are allowed.
    if (inputs[indices_input].constant != nullptr && inputs[updates_input].constant != nullptr && indices[0] == 1)
      return std::nullopt;
    AxisMap map = axes_kept_if(3, y.rank(), [&](int axis) { return axis != written; });
    map.inputs[indices_input] = map.inputs[updates_input] =
        axes_kept_if(1, y.rank(), [&](int axis) { return axis != written && indices[axis] == y[axis]; }).inputs[0];
    return map;
  }

  IndexWalk walk(const Shape& data, const Shape& indices) const override {
    return elements_walk(data, resolve_axis(axis_, data.rank()), indices);
  }
  ScatterWalk chained(const Shape& data, const Shape& indices) const override {
    ScatterWalk chained;
    chained.walk = elements_walk(data, resolve_axis(axis_, data.rank()), indices, &chained.chain);
    return chained;
  }

 private:
  bool deprecated_;
  std::int64_t axis_ = 0;
};

class ScatterND final : public ScatterOp {
 public:
  explicit ScatterND(const NodeSpec& spec) {
    AttributeReader reader(spec);
    read_kind(reader, spec, 16);
    reader.finish();
  }

  std::string_view type() const override { return "ScatterND"; }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    check_inputs(inputs);
    const TensorType& data = inputs[data_input].type;
    const Shape& indices = inputs[indices_input].type.shape;
    const auto depth = static_cast<std::ptrdiff_t>(require_tuples(data.shape, indices, 0));
    std::vector<std::int64_t> dims(indices.dims().begin(), indices.dims().end() - 1);
    dims.insert(dims.end(), data.shape.dims().begin() + depth, data.shape.dims().end());
    require_shape("updates", inputs[updates_input].type.shape, Shape(dims));
    return {data};
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape& y) const override {
    const Shape& indices = inputs[indices_input].type.shape;
    const int tuples = indices.rank() - 1, depth = static_cast<int>(indices[tuples]);
    AxisMap map = axes_kept_if(3, y.rank(), [&](int axis) { return axis >= depth; });
    map.inputs[indices_input].parameter = map.inputs[updates_input].parameter = false;
    for (int axis = depth; axis < y.rank(); ++axis)
      map.inputs[updates_input].axis[static_cast<std::size_t>(axis)] = static_cast<std::int8_t>(axis - depth + tuples);
    return map;
  }

  IndexWalk walk(const Shape& data, const Shape& indices) const override { return tuples_walk(data, 0, indices); }
  ScatterWalk chained(const Shape& data, const Shape& indices) const override {
    ScatterWalk chained{walk(data, indices), {}};
    chained.chain = {chained.walk.loops.count(), 0, 1};
    chained.walk.loops = StridedLoops();
    return chained;
  }
};

/// True if no element of data has two updates. Indices must be valid.
bool all_different(const IndexWalk& walk, const Tensor& indices) {
  if (walk.inner == 0) return true;
  std::vector<bool> named(static_cast<std::size_t>(walk.data.elems() / walk.inner), false);
  bool different = true;
  dispatch(indices.dtype(), IndexTypes(), [&]<typename Index>(std::type_identity<Index>) {
    for_each_place(walk, indices.values<Index>().data(), 0, walk.loops.count(), [&](auto, auto, std::int64_t at) {
      auto seen = named[static_cast<std::size_t>(at / walk.inner)];
      different = different && !seen;
      seen = true;
    });
  });
  return different;
}

class BoundScatter final : public BoundKernel {
 public:
  /// Error(invalid_argument) when known indices are out of range.
  explicit BoundScatter(const Binding& binding)
      : kind_(binding.op<ScatterOp>().kind()), known_(binding.constant(indices_input) != nullptr) {
    const auto& op = binding.op<ScatterOp>();
    const Shape &data = binding.shape(data_input), &indices = binding.shape(indices_input);
    if (known_) {
      const IndexWalk walk = op.walk(data, indices);
      if (auto wrong = wrong_index(walk, *binding.constant(indices_input)))
        throw Error(ErrorKind::invalid_argument, std::move(*wrong));
      if (all_different(walk, *binding.constant(indices_input))) {
        scatter_ = {walk, {}};
        return;
      }
    }
    scatter_ = op.chained(data, indices);
  }

  std::string fault() const override { return known_ ? std::string() : index_fault(scatter_.walk); }

  void run(const KernelRun& run) const override {
    const Tensor &indices = run.inputs[indices_input], &updates = run.inputs[updates_input];
    // Checked before any write: output 0 may overwrite the data.
    if (run.cuda == nullptr && !known_) check_indices(scatter_.walk, indices, *run.pool);
    copy_bytes(run, run.inputs[data_input], run.outputs[0]);
    const DType dtype = updates.dtype();
    if constexpr (cuda_built)
      if (run.cuda != nullptr)
        return cuda::scatter(*run.cuda, kind_, dtype, scatter_.walk, scatter_.chain, indices.data(),
                             indices.dtype() == DType::i64, updates.data(), run.outputs[0].data());
    dispatch(indices.dtype(), IndexTypes(), [&]<typename Index>(std::type_identity<Index>) {
      const Index* all = indices.values<Index>().data();
      if (kind_ == ScatterKind::none)
        dispatch_bytes(dtype_bytes(dtype), [&]<typename T>(std::type_identity<T>) {
          write<T>(run, all, [](T& y, T update) { y = update; });
        });
      else
        dispatch(dtype, cuda::ScatterTypes(), [&]<typename T>(std::type_identity<T>) {
          write<T>(run, all, [kind = kind_](T& y, T update) { y = scattered(kind, y, update); });
        });
    });
  }

 private:
  /// A part owns some adjacent positions of the innermost loop and some columns of the slices, and applies the chain in
  /// order, so that each element gets its updates in order.
  template <typename T, typename Index, typename Join>
  void write(const KernelRun& run, const Index* indices, const Join& join) const {
    constexpr std::int64_t most_lanes = 128, most_columns = 1024;
    const IndexWalk& walk = scatter_.walk;
    const Loop& chain = scatter_.chain;
    StridedLoops outer = walk.loops;
    Loop lane;
    // Vectorised across positions only if their updates are closer in memory than the chain's.
    if (outer.rank() > 0 && (chain.dim == 1 || outer[outer.rank() - 1].to < chain.to))
      lane = outer.take(outer.rank() - 1);
    const std::int64_t lanes = std::min(lane.dim, most_lanes), columns = std::min(walk.inner, most_columns);
    if (outer.count() == 0 || lanes == 0 || columns == 0 || chain.dim == 0) return;
    const std::int64_t lane_cuts = (lane.dim + lanes - 1) / lanes, cuts = (walk.inner + columns - 1) / columns;
    const auto* updates = run.in<T>(updates_input);
    auto* to = run.out<T>();
    run.pool->parallel_for(
        outer.count() * lane_cuts * cuts, std::max<std::int64_t>(1, elementwise_grain / (lanes * columns * chain.dim)),
        [&](std::int64_t begin, std::int64_t end, int) {
          for (std::int64_t part = begin; part < end; ++part) {
            const LoopCursor at(outer, part / cuts / lane_cuts);
            const std::int64_t first = part / cuts % lane_cuts * lanes, column = part % cuts * columns;
            const std::int64_t width = std::min(lanes, lane.dim - first),
                               count = std::min(columns, walk.inner - column);
            for (std::int64_t link = 0; link < chain.dim; ++link) {
              std::int64_t tuple = at.to + link * chain.to + first * lane.to;
              std::int64_t base = at.from + link * chain.from + first * lane.from;
              for (std::int64_t j = 0; j < width; ++j, tuple += lane.to, base += lane.from) {
                T* y = to + base + walk.place(indices + tuple * walk.depth) + column;
                const T* update = updates + tuple * walk.inner + column;
                if (count == 1) {  // faster than a loop
                  join(*y, *update);
                  continue;
                }
                for (std::int64_t i = 0; i < count; ++i) join(y[i], update[i]);
              }
            }
          }
        });
  }

  ScatterKind kind_;
  bool known_;  ///< the indices, which were checked
  ScatterWalk scatter_;
};

std::optional<std::string> refuse(const Problem& problem) {
  const auto& op = problem.as<ScatterOp>();
  const DType dtype = problem.inputs()[data_input].type.dtype;
  if (op.kind() == ScatterKind::none || dtypes<cuda::ScatterTypes>.contains(dtype)) return std::nullopt;
  return fmt::format("reduction {} of {} (supported: {})", kind_names[static_cast<std::size_t>(op.kind())],
                     to_string(dtype), dtypes<cuda::ScatterTypes>.str());
}

std::optional<std::string> refuse_cuda(const Problem& problem) {
  if (auto why = refuse(problem)) return why;
  if (problem.shape(updates_input).elems() > cuda::max_scattered) return "more updates than 32-bit indices count";
  return refuse_indices(problem, problem.as<ScatterOp>().walk(problem.shape(data_input), problem.shape(indices_input)));
}

/// An element of data and the most updates that can meet in it, one rounding each.
double tolerance_for(const Problem& problem) {
  const ScatterKind kind = problem.as<ScatterOp>().kind();
  if (kind != ScatterKind::add && kind != ScatterKind::mul) return 0;
  return sum_tolerance(
      problem.as<ScatterOp>().chained(problem.shape(data_input), problem.shape(indices_input)).chain.dim + 1);
}

constexpr auto kernels = on_both({.tolerance_for = tolerance_for, .in_place = input_bit(data_input), .refuse = refuse},
                                 bind<BoundScatter>, bind<BoundScatter>, refuse_cuda);

}  // namespace

OpParts scatter_elements() { return {make_from<ScatterElements>, kernels}; }
OpParts scatter_nd() { return {make_from<ScatterND>, kernels}; }

}  // namespace lenslet
