// Expand (broadcast to a shape) and Tile (repeat along each axis).

#include <fmt/format.h>

#include "ops/core/broadcast.h"
#include "ops/core/makers.h"
#include "ops/core/shape_args.h"
#include "ops/core/strided_copy.h"
#include "ops/core/type_check.h"
#include "ops/movement/strided_copy_cuda.h"

namespace lenslet {

namespace {

/// Every element of the input at one or more places of the output; the second input says how and is known before the
/// run.
class RepeatOp : public Op {
 public:
  double tolerance(std::span<const InputInfo>) const override { return 0; }

  void run_cpu(const RunContext& context) const override {
    const Tensor& from = context.inputs[0];
    Tensor& to = context.outputs[0];
    if (to.elems() > 0)
      strided_copy(dtype_bytes(to.dtype()), loops(from.shape(), to.shape()), from.data(), to.data(), context.pool);
  }

  std::optional<std::string> refuse_cuda(std::span<const InputInfo>) const override { return std::nullopt; }
  bool reads_on_cuda(int input, const PlanContext&) const override { return input == 0; }
  void run_cuda(const CudaRun& run) const override {
    const Tensor& from = run.inputs[0];
    Tensor& to = run.outputs[0];
    if constexpr (cuda_built)
      if (to.elems() > 0)
        cuda::strided_copy(run.context, dtype_bytes(to.dtype()), loops(from.shape(), to.shape()), from.data(),
                           to.data());
  }

 private:
  /// From input to output, both row-major.
  virtual StridedLoops loops(const Shape& from, const Shape& to) const = 0;
};

class Expand final : public RepeatOp {
 public:
  std::string_view type() const override { return "Expand"; }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& data = required_input(inputs, 0, "input");
    const AxisInts dims = required_axis_ints(inputs, 1, "shape");
    for (const std::int64_t dim : dims.span())
      if (dim < 0) throw Error(ErrorKind::invalid_model, fmt::format("shape has the dimension {}", dim));
    return {{data.dtype, broadcast_shapes(data.shape, Shape(dims.span()))}};
  }

 private:
  StridedLoops loops(const Shape& from, const Shape& to) const override {
    const int added = to.rank() - from.rank();
    const auto from_strides = element_strides(from, formats::nchw);
    const auto to_strides = element_strides(to, formats::nchw);
    StridedLoops loops;
    for (int i = 0; i < to.rank(); ++i) {
      const bool repeated = i < added || from[i - added] == 1;
      loops.add(to[i], repeated ? 0 : from_strides[static_cast<std::size_t>(i - added)],
                to_strides[static_cast<std::size_t>(i)]);
    }
    return loops;
  }
};

class Tile final : public RepeatOp {
 public:
  std::string_view type() const override { return "Tile"; }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    TensorType type = required_input(inputs, 0, "input");
    const AxisInts repeats = required_axis_ints(inputs, 1, "repeats");
    if (repeats.size != type.shape.rank())
      throw Error(ErrorKind::invalid_model,
                  fmt::format("repeats has {} elements for an input of shape {}", repeats.size, type.shape.str()));
    for (int i = 0; i < repeats.size; ++i) {
      if (repeats[i] < 0) throw Error(ErrorKind::invalid_model, fmt::format("repeats has the element {}", repeats[i]));
      type.shape = type.shape.with(i, multiply_dims(type.shape[i], repeats[i]));
    }
    return {type};
  }

 private:
  StridedLoops loops(const Shape& from, const Shape& to) const override {
    const auto from_strides = element_strides(from, formats::nchw);
    const auto to_strides = element_strides(to, formats::nchw);
    // Two loops an axis: the repetition, which stands still in the input, and the axis itself.
    StridedLoops loops;
    for (int i = 0; i < from.rank(); ++i) {
      const auto axis = static_cast<std::size_t>(i);
      const std::int64_t dim = from[i];
      loops.add(to[i] / dim, 0, dim * to_strides[axis]);
      loops.add(dim, from_strides[axis], to_strides[axis]);
    }
    return loops;
  }
};

}  // namespace

std::shared_ptr<const Op> make_expand(const NodeSpec& spec) {
  AttributeReader(spec.attributes).finish();
  return std::make_shared<Expand>();
}

std::shared_ptr<const Op> make_tile(const NodeSpec& spec) {
  AttributeReader(spec.attributes).finish();
  return std::make_shared<Tile>();
}

}  // namespace lenslet
