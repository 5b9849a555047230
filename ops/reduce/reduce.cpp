// The Reduce family. The axes are an attribute until opset 17 (ReduceSum: 12), then an input.

#include "ops/reduce/reduce_kernels.h"

#include <fmt/format.h>

#include "ops/core/broadcast.h"
#include "ops/core/makers.h"
#include "ops/core/shape_args.h"
#include "ops/core/type_check.h"
#include "ops/reduce/reduce_cuda.h"
#include "ops/reduce/reduce_kind.h"

namespace lenslet {

namespace {

using Kind = ReduceKind;

std::string_view name_of(Kind kind) {
  switch (kind) {
    case Kind::sum:
      return "ReduceSum";
    case Kind::mean:
      return "ReduceMean";
    case Kind::max:
      return "ReduceMax";
    case Kind::min:
      return "ReduceMin";
    case Kind::prod:
      return "ReduceProd";
    case Kind::sum_square:
      return "ReduceSumSquare";
    case Kind::l1:
      return "ReduceL1";
    case Kind::l2:
      return "ReduceL2";
    case Kind::log_sum:
      return "ReduceLogSum";
    case Kind::log_sum_exp:
      return "ReduceLogSumExp";
  }
  return "?";
}

class Reduce final : public Op {
 public:
  Reduce(Kind kind, std::optional<AxisInts> axes, bool keep_dims, bool noop_when_empty)
      : kind_(kind), axes_(axes), keep_dims_(keep_dims), noop_when_empty_(noop_when_empty) {}

  std::string_view type() const override { return name_of(kind_); }
  AttributeList attributes() const override {
    AttributeList list{{"keepdims", std::int64_t{keep_dims_}},
                       {"noop_with_empty_axes", std::int64_t{noop_when_empty_}}};
    if (axes_) list.emplace_back("axes", std::vector<std::int64_t>(axes_->span().begin(), axes_->span().end()));
    return list;
  }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& data = required_input(inputs, 0, "data");
    if (kind_ == Kind::l2 || kind_ == Kind::log_sum || kind_ == Kind::log_sum_exp)
      require_dtype("data", data.dtype, {DType::f32});
    else
      require_dtype("data", data.dtype, {DType::f32, DType::i32, DType::i64});
    const auto axes = axes_ ? axes_ : constant_axis_ints(inputs, 1, "axes");
    const auto reduced = mask(data.shape.rank(), axes);
    AxisInts dims;
    for (int i = 0; i < data.shape.rank(); ++i) {
      if (reduced[static_cast<std::size_t>(i)] && !keep_dims_) continue;
      dims.values[static_cast<std::size_t>(dims.size++)] = reduced[static_cast<std::size_t>(i)] ? 1 : data.shape[i];
    }
    return {{data.dtype, Shape(dims.span())}};
  }
  // Without keepdims a 4-D input gives an output of lower rank, which is row-major, so any input layout will do.
  bool runs_in(Format, std::span<const InputInfo>) const override { return true; }
  double flops(std::span<const InputInfo> inputs, std::span<const TensorType>) const override {
    return static_cast<double>(inputs[0].type.shape.elems());
  }

  void run_cpu(const RunContext& context) const override {
    switch (context.inputs[0].dtype()) {
      case DType::f32:
        return run<float>(context);
      case DType::i32:
        return run<std::int32_t>(context);
      default:
        return run<std::int64_t>(context);
    }
  }

  std::size_t workspace_bytes(const PlanContext& context) const override {
    if constexpr (cuda_built)
      if (context.device == DeviceKind::cuda)
        return cuda::reduce_workspace_bytes(loops({context.inputs[0].type.shape, context.input_layouts[0]},
                                                  {context.outputs[0].shape, context.layout},
                                                  context.inputs.size() > 1 ? context.inputs[1].constant : nullptr));
    return 0;
  }

  std::optional<std::string> refuse_cuda(std::span<const InputInfo>) const override { return std::nullopt; }
  // The axes, known before the run, are read on the host.
  bool reads_on_cuda(int input, const PlanContext&) const override { return input == 0; }

  void run_cuda(const CudaRun& run) const override {
    if constexpr (cuda_built) {
      const Tensor& from = run.inputs[0];
      Tensor& to = run.outputs[0];
      cuda::reduce(run.context, kind_, from.dtype(), loops(from, to, run.host_inputs), from.data(), to.data(),
                   run.workspace.data());
    }
  }

 private:
  std::array<bool, Shape::max_rank> mask(int rank, const std::optional<AxisInts>& axes) const {
    if (axes && axes->size > 0) return axis_mask(axes->span(), rank);
    std::array<bool, Shape::max_rank> all{};
    all.fill(!noop_when_empty_);
    return all;
  }

  struct Operand {
    const Shape& shape;
    Format layout;
  };

  /// `axes`: the input of that name, on the host; null or empty when left out.
  reduce::Loops loops(const Operand& from, const Operand& to, const Tensor* axes) const {
    const int rank = from.shape.rank();
    const bool input_axes = !axes_ && axes != nullptr && !axes->empty();
    const auto reduced = mask(rank, input_axes ? axis_ints(*axes, "axes") : axes_);
    std::array<int, Shape::max_rank> to_axis{};
    for (int i = 0, next = 0; i < rank; ++i) {
      to_axis[static_cast<std::size_t>(i)] = next;
      if (keep_dims_ || !reduced[static_cast<std::size_t>(i)]) ++next;
    }
    const auto from_strides = element_strides(from.shape, from.layout);
    const auto to_strides = element_strides(to.shape, to.layout);
    const auto order = memory_order(rank, from.layout);
    reduce::Loops loops;
    for (int i = 0; i < rank; ++i) {
      const auto axis = static_cast<std::size_t>(order[static_cast<std::size_t>(i)]);
      const std::int64_t dim = from.shape[static_cast<int>(axis)];
      if (reduced[axis])
        loops.reduced.add(dim, from_strides[axis], 0);
      else
        loops.kept.add(dim, from_strides[axis], to_strides[static_cast<std::size_t>(to_axis[axis])]);
    }
    return loops;
  }

  static Operand operand(const Tensor& tensor) { return {tensor.shape(), tensor.format()}; }
  reduce::Loops loops(const Tensor& from, const Tensor& to, std::span<const Tensor> host_inputs) const {
    return loops(operand(from), operand(to), host_inputs.size() > 1 ? &host_inputs[1] : nullptr);
  }

  template <typename T>
  void run(const RunContext& context) const {
    const auto* from = static_cast<const T*>(context.inputs[0].data());
    auto* to = static_cast<T*>(context.outputs[0].data());
    const reduce::Loops l = loops(context.inputs[0], context.outputs[0], context.inputs);
    ThreadPool& pool = context.pool;
    switch (kind_) {
      case Kind::sum:
        return reduce::run<reduce::SumOf<T>>(l, from, to, pool);
      case Kind::mean:
        return reduce::run<reduce::MeanOf<T>>(l, from, to, pool);
      case Kind::max:
        return reduce::run<reduce::MaxOf<T>>(l, from, to, pool);
      case Kind::min:
        return reduce::run<reduce::MinOf<T>>(l, from, to, pool);
      case Kind::prod:
        return reduce::run<reduce::ProdOf<T>>(l, from, to, pool);
      case Kind::sum_square:
        return reduce::run<reduce::SumSquareOf<T>>(l, from, to, pool);
      case Kind::l1:
        return reduce::run<reduce::L1Of<T>>(l, from, to, pool);
      default:
        break;
    }
    if constexpr (std::is_same_v<T, float>) {
      if (kind_ == Kind::l2) return reduce::run<reduce::L2Of<T>>(l, from, to, pool);
      if (kind_ == Kind::log_sum) return reduce::run<reduce::LogSumOf<T>>(l, from, to, pool);
      reduce::run<reduce::LogSumExpOf<T>>(l, from, to, pool);
    }
  }

  Kind kind_;
  std::optional<AxisInts> axes_;
  bool keep_dims_;
  bool noop_when_empty_;
};

template <Kind kind>
std::shared_ptr<const Op> make(const NodeSpec& spec) {
  AttributeReader reader(spec.attributes);
  const bool axes_are_input = spec.opset >= (kind == Kind::sum ? 13 : 18);
  std::optional<AxisInts> axes;
  if (!axes_are_input && reader.has("axes")) axes = AxisInts(reader.integers("axes"), "axes");
  if (!axes_are_input && spec.inputs > 1)
    throw Error(ErrorKind::invalid_model, fmt::format("axes are an attribute in opset {}, not an input", spec.opset));
  const bool keep_dims = reader.integer("keepdims", 1) != 0;
  const bool noop_when_empty = axes_are_input && reader.integer("noop_with_empty_axes", 0) != 0;
  reader.finish();
  return std::make_shared<Reduce>(kind, axes, keep_dims, noop_when_empty);
}

}  // namespace

std::shared_ptr<const Op> make_reduce_sum(const NodeSpec& spec) { return make<Kind::sum>(spec); }
std::shared_ptr<const Op> make_reduce_mean(const NodeSpec& spec) { return make<Kind::mean>(spec); }
std::shared_ptr<const Op> make_reduce_max(const NodeSpec& spec) { return make<Kind::max>(spec); }
std::shared_ptr<const Op> make_reduce_min(const NodeSpec& spec) { return make<Kind::min>(spec); }
std::shared_ptr<const Op> make_reduce_prod(const NodeSpec& spec) { return make<Kind::prod>(spec); }
std::shared_ptr<const Op> make_reduce_sum_square(const NodeSpec& spec) { return make<Kind::sum_square>(spec); }
std::shared_ptr<const Op> make_reduce_l1(const NodeSpec& spec) { return make<Kind::l1>(spec); }
std::shared_ptr<const Op> make_reduce_l2(const NodeSpec& spec) { return make<Kind::l2>(spec); }
std::shared_ptr<const Op> make_reduce_log_sum(const NodeSpec& spec) { return make<Kind::log_sum>(spec); }
std::shared_ptr<const Op> make_reduce_log_sum_exp(const NodeSpec& spec) { return make<Kind::log_sum_exp>(spec); }

}  // namespace lenslet
