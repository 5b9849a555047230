// GlobalAveragePool, GlobalMaxPool and GlobalLpPool: one value per image and channel.

#include <fmt/format.h>

#include "ops/core/checks.h"
#include "ops/reduce/reduction.h"

namespace lenslet {

namespace {

/// x [N,C,...] of rank 3 or more to [N,C,1,...]. Means are summed in double, so that large images stay exact. A maximum
/// over a NaN is NaN.
class GlobalPoolOp final : public Op {
 public:
  ReduceKind kind = ReduceKind::mean;  ///< or max, or l1 and l2

  std::string_view type() const override {
    return kind == ReduceKind::max ? "GlobalMaxPool" : kind == ReduceKind::mean ? "GlobalAveragePool" : "GlobalLpPool";
  }
  AttributeList attributes() const override {
    if (kind == ReduceKind::max || kind == ReduceKind::mean) return {};
    return {{"p", std::int64_t{kind == ReduceKind::l1 ? 1 : 2}}};
  }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& x = required_input(inputs, 0, "X");
    if (x.shape.rank() < 3)
      throw Error(ErrorKind::unsupported,
                  fmt::format("input X has shape {} (supported: rank 3 and more)", x.shape.str()));
    TensorType y = x;
    for (int d = 2; d < x.shape.rank(); ++d) {
      if (x.shape[d] == 0) throw Error(ErrorKind::invalid_model, fmt::format("input X {} is empty", x.shape.str()));
      y.shape = y.shape.with(d, 1);
    }
    return {y};
  }
  double flops(std::span<const InputInfo> inputs, std::span<const TensorType>) const override {
    return static_cast<double>(inputs[0].type.shape.elems());
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape&) const override {
    return axes_kept(inputs.size(), {0, 1});
  }
};

std::int64_t area_of(const Shape& x) {
  std::int64_t area = 1;
  for (int d = 2; d < x.rank(); ++d) area *= x[d];
  return area;
}

reduce::Loops loops_of(const Binding& binding) {
  const Shape& x = binding.shape(0);
  const bool nhwc = binding.format(0).order == Format::Order::channels_last;
  const auto pixel = [](const Shape& shape, const Format& format) { return std::max(shape[1], format.pixel_pitch); };
  if (!nhwc || x.rank() != 4) return reduce::plane_loops(x[0], x[1], area_of(x), nhwc);
  return reduce::plane_loops(x[0], x[1], area_of(x), true,
                             {pixel(x, binding.format(0)), pixel(binding.output_shape(), binding.output_format())});
}

std::unique_ptr<const BoundKernel> bind_cpu(const Binding& binding) {
  return reduce::on_cpu(binding.op<GlobalPoolOp>().kind, binding.problem.inputs()[0].type.dtype, loops_of(binding));
}

std::unique_ptr<const BoundKernel> bind_cuda(const Binding& binding) {
  return reduce::on_cuda(binding.op<GlobalPoolOp>().kind, binding.problem.inputs()[0].type.dtype, loops_of(binding));
}

constexpr auto kernels_for(DTypeSet types) {
  return on_both({.types = types,
                  .more_on_cuda = dtypes<HalfTypes>,
                  .formats = nchw_or_nhwc,
                  .tolerance = 2e-6,
                  .skips_padding = true},
                 bind_cpu, bind_cuda);
}
constexpr auto kernels = kernels_for(dtypes<Types<float>>);
constexpr auto average_kernels = [] {
  auto both = kernels_for(dtypes<WithBrain<Types<float>>>);
  both[0].formats = {};
  both[0].formats_for = reduce::formats_of_mean;
  both[0].refuse = [](const Problem& problem) -> std::optional<std::string> {
    if (problem.inputs()[0].type.dtype != DType::bf16) return std::nullopt;
    return reduce::refuse_brain(ReduceKind::mean, problem.shape(0).rank(), {{false, false, true, true}});
  };
  return both;
}();

std::shared_ptr<const Op> make(const NodeSpec& spec) {
  AttributeReader reader(spec);
  auto op = std::make_shared<GlobalPoolOp>();
  if (spec.name == "GlobalMaxPool") op->kind = ReduceKind::max;
  if (spec.name == "GlobalLpPool") {
    const std::int64_t p = reader.integer("p", 2);
    if (p != 1 && p != 2) throw Error(ErrorKind::unsupported, fmt::format("attribute 'p' = {} (supported: 1, 2)", p));
    op->kind = p == 1 ? ReduceKind::l1 : ReduceKind::l2;
  }
  reader.finish();
  return op;
}

}  // namespace

OpParts global_average_pool() { return {make, average_kernels}; }
OpParts global_pool() { return {make, kernels}; }

}  // namespace lenslet
