// ArgMax and ArgMin: index of the largest or smallest element along one axis, the first of equals or the last.

#include <array>
#include <functional>

#include "ops/core/broadcast.h"
#include "ops/core/grain.h"
#include "ops/core/makers.h"
#include "ops/core/shape_args.h"
#include "ops/core/type_check.h"
#include "ops/reduce/arg_reduce_cuda.h"
#include "ops/reduce/reduce_cuda.h"
#include "ops/reduce/reduce_kernels.h"

namespace lenslet {

namespace {

class ArgExtreme final : public Op {
 public:
  ArgExtreme(bool largest, std::int64_t axis, bool keep_dims, bool last)
      : largest_(largest), axis_(axis), keep_dims_(keep_dims), last_(last) {}

  std::string_view type() const override { return largest_ ? "ArgMax" : "ArgMin"; }
  AttributeList attributes() const override {
    return {{"axis", axis_}, {"keepdims", std::int64_t{keep_dims_}}, {"select_last_index", std::int64_t{last_}}};
  }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& data = required_input(inputs, 0, "data");
    require_dtype("data", data.dtype, {DType::f32, DType::i32, DType::i64, DType::u8, DType::i8});
    const int axis = resolve_axis(axis_, data.shape.rank());
    if (data.shape[axis] == 0)
      throw Error(ErrorKind::invalid_model, "no element to choose from in " + data.shape.str());
    AxisInts dims;
    for (int i = 0; i < data.shape.rank(); ++i)
      if (keep_dims_ || i != axis) dims.values[static_cast<std::size_t>(dims.size++)] = i == axis ? 1 : data.shape[i];
    return {{DType::i64, Shape(dims.span())}};
  }
  bool runs_in(Format, std::span<const InputInfo>) const override { return true; }
  double tolerance(std::span<const InputInfo>) const override { return 0; }

  void run_cpu(const RunContext& context) const override {
    switch (context.inputs[0].dtype()) {
      case DType::f32:
        return run<float>(context);
      case DType::i32:
        return run<std::int32_t>(context);
      case DType::i64:
        return run<std::int64_t>(context);
      case DType::u8:
        return run<std::uint8_t>(context);
      default:
        return run<std::int8_t>(context);
    }
  }

  std::size_t workspace_bytes(const PlanContext& context) const override {
    if constexpr (cuda_built)
      if (context.device == DeviceKind::cuda)
        return cuda::reduce_workspace_bytes(
            loops(context.inputs[0].type.shape, context.input_layouts[0], context.outputs[0].shape, context.layout));
    return 0;
  }

  std::optional<std::string> refuse_cuda(std::span<const InputInfo>) const override { return std::nullopt; }

  void run_cuda(const CudaRun& run) const override {
    if constexpr (cuda_built) {
      const Tensor& x = run.inputs[0];
      Tensor& y = run.outputs[0];
      cuda::arg_extreme(run.context, largest_, last_, x.dtype(), loops(x.shape(), x.format(), y.shape(), y.format()),
                        x.data(), static_cast<std::int64_t*>(y.data()), run.workspace.data());
    }
  }

 private:
  std::int64_t axis_stride(const Shape& from, Format layout) const {
    return element_strides(from, layout)[static_cast<std::size_t>(resolve_axis(axis_, from.rank()))];
  }

  StridedLoops kept_loops(const Shape& from, Format from_layout, const Shape& to, Format to_layout) const {
    const int rank = from.rank(), axis = resolve_axis(axis_, rank);
    const auto from_strides = element_strides(from, from_layout);
    const auto to_strides = element_strides(to, to_layout);
    const auto order = memory_order(rank, from_layout);
    StridedLoops kept;
    for (int i = 0; i < rank; ++i) {
      const int a = order[static_cast<std::size_t>(i)];
      if (a == axis) continue;
      const int to_axis = keep_dims_ || a < axis ? a : a - 1;
      kept.add(from[a], from_strides[static_cast<std::size_t>(a)], to_strides[static_cast<std::size_t>(to_axis)]);
    }
    return kept;
  }

  reduce::Loops loops(const Shape& from, Format from_layout, const Shape& to, Format to_layout) const {
    reduce::Loops both;
    both.kept = kept_loops(from, from_layout, to, to_layout);
    both.reduced.add(from[resolve_axis(axis_, from.rank())], axis_stride(from, from_layout), 0);
    return both;
  }

  template <typename T>
  void run(const RunContext& context) const {
    if (largest_ && last_) return search<T>(context, std::greater_equal<T>());
    if (largest_) return search<T>(context, std::greater<T>());
    if (last_) return search<T>(context, std::less_equal<T>());
    return search<T>(context, std::less<T>());
  }

  // Neighbouring outputs are searched together when they are neighbours in the input, so that rows are read in order.
  template <typename T, typename Better>
  void search(const RunContext& context, Better better) const {
    const Tensor& input = context.inputs[0];
    Tensor& output = context.outputs[0];
    const int axis = resolve_axis(axis_, input.shape().rank());
    StridedLoops kept = kept_loops(input.shape(), input.format(), output.shape(), output.format());
    if (kept.count() == 0) return;
    const int contiguous = reduce::contiguous_loop(kept);
    const StridedLoops::Loop lane = contiguous >= 0 ? kept.take(contiguous) : StridedLoops::Loop{1, 1, 1};
    const std::int64_t dim = input.shape()[axis], stride = axis_stride(input.shape(), input.format());
    const std::int64_t blocks = (lane.dim + reduce::lanes - 1) / reduce::lanes;
    const auto* from = static_cast<const T*>(input.data());
    auto* to = static_cast<std::int64_t*>(output.data());
    context.pool.parallel_for(kept.count() * blocks,
                              std::max<std::int64_t>(1, elementwise_grain / (dim * std::min(reduce::lanes, lane.dim))),
                              [&](std::int64_t begin, std::int64_t end, int) {
                                for (std::int64_t unit = begin; unit < end; ++unit) {
                                  const LoopCursor at(kept, unit / blocks);
                                  const std::int64_t first = unit % blocks * reduce::lanes;
                                  const std::int64_t width = std::min(reduce::lanes, lane.dim - first);
                                  std::array<T, reduce::lanes> best{};
                                  std::array<std::int64_t, reduce::lanes> where{};
                                  const T* row = from + at.from + first;
                                  std::copy_n(row, width, best.begin());
                                  for (std::int64_t i = 1; i < dim; ++i) {
                                    row += stride;
                                    for (std::int64_t j = 0; j < width; ++j) {
                                      const auto lane_index = static_cast<std::size_t>(j);
                                      if (!better(row[j], best[lane_index])) continue;
                                      best[lane_index] = row[j];
                                      where[lane_index] = i;
                                    }
                                  }
                                  for (std::int64_t j = 0; j < width; ++j)
                                    to[at.to + (first + j) * lane.to] = where[static_cast<std::size_t>(j)];
                                }
                              });
  }

  bool largest_;
  std::int64_t axis_;
  bool keep_dims_;
  bool last_;
};

std::shared_ptr<const Op> make(const NodeSpec& spec, bool largest) {
  AttributeReader reader(spec.attributes);
  const std::int64_t axis = reader.integer("axis", 0);
  const bool keep_dims = reader.integer("keepdims", 1) != 0;
  const bool last = spec.opset >= 12 && reader.integer("select_last_index", 0) != 0;
  reader.finish();
  return std::make_shared<ArgExtreme>(largest, axis, keep_dims, last);
}

}  // namespace

std::shared_ptr<const Op> make_arg_max(const NodeSpec& spec) { return make(spec, true); }
std::shared_ptr<const Op> make_arg_min(const NodeSpec& spec) { return make(spec, false); }

}  // namespace lenslet
