// Concat: inputs side by side along one axis.

#include <fmt/format.h>

#include "ops/core/broadcast.h"
#include "ops/core/makers.h"
#include "ops/core/shape_args.h"
#include "ops/core/strided_copy.h"
#include "ops/core/type_check.h"
#include "ops/movement/strided_copy_cuda.h"

namespace lenslet {

namespace {

class Concat final : public Op {
 public:
  explicit Concat(std::int64_t axis) : axis_(axis) {}

  std::string_view type() const override { return "Concat"; }
  AttributeList attributes() const override { return {{"axis", axis_}}; }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    TensorType result = required_input(inputs, 0, "inputs");
    const int rank = result.shape.rank();
    const int axis = resolve_axis(axis_, rank);
    for (std::size_t i = 1; i < inputs.size(); ++i) {
      const TensorType& type = required_input(inputs, i, "inputs");
      if (type.dtype != result.dtype)
        throw Error(ErrorKind::invalid_model,
                    fmt::format("input {} is {}, input 0 is {}", i, to_string(type.dtype), to_string(result.dtype)));
      if (type.shape.rank() != rank || !(type.shape.with(axis, 0) == result.shape.with(axis, 0)))
        throw Error(ErrorKind::invalid_model, fmt::format("cannot join {} to {} along axis {}", type.shape.str(),
                                                          inputs[0].type.shape.str(), axis));
      result.shape = result.shape.with(axis, add_dims(result.shape[axis], type.shape[axis]));
    }
    return {result};
  }
  bool runs_in(Format, std::span<const InputInfo>) const override { return true; }
  double tolerance(std::span<const InputInfo>) const override { return 0; }

  void run_cpu(const RunContext& context) const override {
    for_each_input(context.inputs, context.outputs[0], [&](const StridedLoops& loops, const void* from, void* to) {
      strided_copy(dtype_bytes(context.outputs[0].dtype()), loops, from, to, context.pool);
    });
  }

  std::optional<std::string> refuse_cuda(std::span<const InputInfo>) const override { return std::nullopt; }
  void run_cuda(const CudaRun& run) const override {
    if constexpr (cuda_built) {
      cuda::CopyBatch batch(run.context, dtype_bytes(run.outputs[0].dtype()));
      for_each_input(run.inputs, run.outputs[0],
                     [&](const StridedLoops& loops, const void* from, void* to) { batch.add(loops, from, to); });
      batch.flush();
    }
  }

 private:
  /// Calls copy(loops, from, to) for each input: the loops over its elements and where both sides begin.
  template <typename Copy>
  void for_each_input(std::span<const Tensor> inputs, Tensor& to, const Copy& copy) const {
    const int rank = to.shape().rank();
    const int axis = resolve_axis(axis_, rank);
    const auto to_strides = element_strides(to.shape(), to.format());
    const auto order = memory_order(rank, to.format());
    std::int64_t start = 0;
    for (const Tensor& from : inputs) {
      const auto from_strides = element_strides(from.shape(), from.format());
      StridedLoops loops;
      for (int i = 0; i < rank; ++i) {
        const int a = order[static_cast<std::size_t>(i)];
        loops.add(from.shape()[a], from_strides[static_cast<std::size_t>(a)], to_strides[static_cast<std::size_t>(a)]);
      }
      copy(loops, from.data(), element_at(to, start * to_strides[static_cast<std::size_t>(axis)]));
      start += from.shape()[axis];
    }
  }

  std::int64_t axis_;
};

}  // namespace

std::shared_ptr<const Op> make_concat(const NodeSpec& spec) {
  AttributeReader reader(spec.attributes);
  const std::int64_t axis = reader.required_integer("axis");
  reader.finish();
  return std::make_shared<Concat>(axis);
}

}  // namespace lenslet
