// The Reduce family. The axes are an attribute until opset 17 (ReduceSum: 12), then an input.

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "ops/core/checks.h"
#include "ops/core/shape_args.h"
#include "ops/reduce/reduce_cuda.h"
#include "ops/reduce/reduction.h"

namespace lenslet {

namespace {

constexpr std::string_view names[] = {  // by ReduceKind
    "ReduceSum",       "ReduceMean", "ReduceMax", "ReduceMin",    "ReduceProd",
    "ReduceSumSquare", "ReduceL1",   "ReduceL2",  "ReduceLogSum", "ReduceLogSumExp"};

class ReduceOp final : public Op {
 public:
  ReduceKind kind = ReduceKind::sum;
  std::optional<AxisInts> axes;  ///< nothing: input 1, where it is there
  bool keep_dims = true;
  bool noop_when_empty = false;  ///< no axes mean none; else all

  std::string_view type() const override { return names[static_cast<std::size_t>(kind)]; }
  AttributeList attributes() const override {
    AttributeList list{{"keepdims", std::int64_t{keep_dims}}, {"noop_with_empty_axes", std::int64_t{noop_when_empty}}};
    if (axes) list.emplace_back("axes", std::vector<std::int64_t>(axes->span().begin(), axes->span().end()));
    return list;
  }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& data = required_input(inputs, 0, "data");
    return {{data.dtype, resolve(inputs).output(data.shape)}};
  }
  double flops(std::span<const InputInfo> inputs, std::span<const TensorType>) const override {
    return static_cast<double>(inputs[0].type.shape.elems());
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape&) const override {
    return resolve(inputs).map(inputs.size(), inputs[0].type.shape.rank());
  }

  // Without keepdims only if the remaining axes keep their order: the result is then unchanged.
  std::optional<PermutedOp> permuted(std::span<const int> to, std::span<const InputInfo> inputs) const override {
    const auto given = given_axes(inputs);
    if (!given || given->size == 0) return std::nullopt;
    const auto reduced = axis_mask(given->span(), static_cast<int>(to.size()));
    std::vector<std::int64_t> moved, left;
    for (std::size_t i = 0; i < to.size(); ++i) (reduced[i] ? moved : left).push_back(to[i]);
    if (!keep_dims && !std::is_sorted(left.begin(), left.end())) return std::nullopt;
    std::sort(moved.begin(), moved.end());
    auto op = std::make_shared<ReduceOp>(*this);
    op->axes = AxisInts(moved, "axes");
    return PermutedOp{.op = std::move(op), .inputs = {{.number = 0}}, .same_result = !keep_dims};
  }

  reduce::Axes resolve(std::span<const InputInfo> inputs) const {
    reduce::Axes resolved{{}, keep_dims};
    const auto given = given_axes(inputs);
    if (given && given->size > 0)
      resolved.reduced = axis_mask(given->span(), inputs[0].type.shape.rank());
    else
      resolved.reduced.fill(!noop_when_empty);
    return resolved;
  }

 private:
  std::optional<AxisInts> given_axes(std::span<const InputInfo> inputs) const {
    return axes ? axes : constant_axis_ints(inputs, 1, "axes");
  }
};

template <auto on_device>
std::unique_ptr<const BoundKernel> bind_reduction(const Binding& binding) {
  const auto& op = binding.op<ReduceOp>();
  return on_device(op.kind, binding.problem.inputs()[0].type.dtype,
                   op.resolve(binding.problem.inputs()).loops(binding));
}

// Without keepdims a 4-D input gives a row-major output of lower rank, so any input format works.
constexpr auto kernels_for(DTypeSet types) {
  return on_both({.types = types,
                  .more_on_cuda = dtypes<HalfTypes>,
                  .formats = nchw_or_nhwc,
                  .tolerance = 2e-6,
                  .reads = input_bit(0)},
                 bind_reduction<reduce::on_cpu>, bind_reduction<reduce::on_cuda>);
}
constexpr auto mean_kernels = [] {
  auto both = kernels_for(dtypes<ReduceTypes>);
  both[0].types = with_brain(both[0].types);
  both[0].formats = {};
  both[0].formats_for = reduce::formats_of_mean;
  both[0].refuse = [](const Problem& problem) -> std::optional<std::string> {
    if (problem.inputs()[0].type.dtype != DType::bf16) return std::nullopt;
    const auto& op = problem.as<ReduceOp>();
    return reduce::refuse_brain(op.kind, problem.shape(0).rank(), op.resolve(problem.inputs()));
  };
  return both;
}();
constexpr auto kernels = kernels_for(dtypes<ReduceTypes>), extreme_kernels = kernels_for(dtypes<ExtremeTypes>),
               root_kernels = kernels_for(dtypes<RootTypes>);

std::shared_ptr<const Op> make(const NodeSpec& spec) {
  auto op = std::make_shared<ReduceOp>();
  op->kind = static_cast<ReduceKind>(std::find(std::begin(names), std::end(names), spec.name) - std::begin(names));
  AttributeReader reader(spec);
  const bool axes_are_input = !spec.before(op->kind == ReduceKind::sum ? 13 : 18);
  if ((!axes_are_input || spec.normalised) && reader.has("axes")) op->axes = AxisInts(reader.integers("axes"), "axes");
  if (!axes_are_input && spec.inputs > 1)
    throw Error(ErrorKind::invalid_model, fmt::format("axes are an attribute in opset {}, not an input", spec.opset));
  op->keep_dims = reader.flag("keepdims", true);
  op->noop_when_empty = axes_are_input && reader.flag("noop_with_empty_axes", false);
  reader.finish();
  return op;
}

}  // namespace

OpParts reduction() { return {make, kernels}; }
OpParts mean_reduction() { return {make, mean_kernels}; }
OpParts extreme_reduction() { return {make, extreme_kernels}; }
OpParts root_reduction() { return {make, root_kernels}; }

}  // namespace lenslet
