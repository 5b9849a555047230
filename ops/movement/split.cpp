// Split: the parts of a tensor along one axis. Sizes are an attribute before opset 13, then an input; opset 18 adds
// num_outputs, whose last part may be smaller.

#include <fmt/format.h>

#include <algorithm>

#include "ops/core/broadcast.h"
#include "ops/core/makers.h"
#include "ops/core/shape_args.h"
#include "ops/core/strided_copy.h"
#include "ops/core/type_check.h"
#include "ops/movement/strided_copy_cuda.h"

namespace lenslet {

namespace {

class Split final : public Op {
 public:
  Split(std::int64_t axis, std::optional<std::vector<std::int64_t>> sizes, std::size_t parts, bool uneven)
      : axis_(axis), sizes_(std::move(sizes)), parts_(parts), uneven_(uneven) {}

  std::string_view type() const override { return "Split"; }
  AttributeList attributes() const override {
    AttributeList list{{"axis", axis_}, {"num_outputs", static_cast<std::int64_t>(parts_)}};
    if (sizes_) list.emplace_back("split", *sizes_);
    return list;
  }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& data = required_input(inputs, 0, "input");
    const int axis = resolve_axis(axis_, data.shape.rank());
    const std::int64_t dim = data.shape[axis];
    const auto sizes = sizes_ ? sizes_ : constant_integers(inputs, 1, "split");
    std::vector<TensorType> types;
    if (!sizes) {
      const auto parts = static_cast<std::int64_t>(parts_);
      const std::int64_t size = dim / parts + (dim % parts != 0 ? 1 : 0);
      // Every part but the last is full, so the last may hold less but not nothing.
      if (dim % parts != 0 && (!uneven_ || size > dim / (parts - 1)))
        throw Error(ErrorKind::invalid_model,
                    fmt::format("cannot split axis {} of {} into {} parts", axis, data.shape.str(), parts));
      for (std::int64_t i = 0; i < parts; ++i)
        types.push_back({data.dtype, data.shape.with(axis, std::min(size, dim - i * size))});
      return types;
    }
    if (sizes->size() != parts_)
      throw Error(ErrorKind::invalid_model, fmt::format("split has {} sizes for {} outputs", sizes->size(), parts_));
    std::int64_t sum = 0;
    for (const std::int64_t size : *sizes) {
      if (size < 0) throw Error(ErrorKind::invalid_model, fmt::format("split has the size {}", size));
      sum = add_dims(sum, size);
      types.push_back({data.dtype, data.shape.with(axis, size)});
    }
    if (sum != dim)
      throw Error(ErrorKind::invalid_model, fmt::format("the sizes of split add up to {}, axis {} of {} has {}", sum,
                                                        axis, data.shape.str(), dim));
    return types;
  }
  bool runs_in(Format, std::span<const InputInfo>) const override { return true; }
  double tolerance(std::span<const InputInfo>) const override { return 0; }

  void run_cpu(const RunContext& context) const override {
    for_each_part(context.inputs, context.inputs, context.outputs,
                  [&](const StridedLoops& loops, const void* from, void* to) {
                    strided_copy(dtype_bytes(context.inputs[0].dtype()), loops, from, to, context.pool);
                  });
  }

  std::optional<std::string> refuse_cuda(std::span<const InputInfo>) const override { return std::nullopt; }
  bool reads_on_cuda(int input, const PlanContext&) const override { return input == 0; }
  void run_cuda(const CudaRun& run) const override {
    if constexpr (cuda_built) {
      cuda::CopyBatch batch(run.context, dtype_bytes(run.inputs[0].dtype()));
      for_each_part(run.inputs, run.host_inputs, run.outputs,
                    [&](const StridedLoops& loops, const void* from, void* to) { batch.add(loops, from, to); });
      batch.flush();
    }
  }

 private:
  /// Calls copy(loops, from, to) for each output that has memory: the loops over its elements and where both sides
  /// begin. The sizes are read from host_inputs, where they are an input.
  template <typename Copy>
  void for_each_part(std::span<const Tensor> inputs, std::span<const Tensor> host_inputs, std::span<Tensor> outputs,
                     const Copy& copy) const {
    const Tensor& from = inputs[0];
    const int rank = from.shape().rank();
    const int axis = resolve_axis(axis_, rank);
    const auto from_strides = element_strides(from.shape(), from.format());
    std::int64_t start = 0;
    for (std::size_t part = 0; part < outputs.size(); ++part) {
      Tensor& to = outputs[part];
      const std::int64_t first = start;
      start += part_size(host_inputs, part, from.shape()[axis]);
      if (to.empty()) continue;
      const auto to_strides = element_strides(to.shape(), to.format());
      const auto order = memory_order(rank, to.format());
      StridedLoops loops;
      for (int i = 0; i < rank; ++i) {
        const int a = order[static_cast<std::size_t>(i)];
        loops.add(to.shape()[a], from_strides[static_cast<std::size_t>(a)], to_strides[static_cast<std::size_t>(a)]);
      }
      copy(loops, element_at(from, first * from_strides[static_cast<std::size_t>(axis)]), to.data());
    }
  }

  // Known even for an output that nobody reads and that has no memory.
  std::int64_t part_size(std::span<const Tensor> inputs, std::size_t part, std::int64_t dim) const {
    if (sizes_) return (*sizes_)[part];
    if (present(inputs, 1)) {
      const Tensor& sizes = inputs[1];
      return sizes.dtype() == DType::i64 ? sizes.values<std::int64_t>()[part] : sizes.values<std::int32_t>()[part];
    }
    const auto parts = static_cast<std::int64_t>(parts_), index = static_cast<std::int64_t>(part);
    const std::int64_t size = dim / parts + (dim % parts != 0 ? 1 : 0);
    return std::min(size, dim - index * size);
  }

  std::int64_t axis_;
  std::optional<std::vector<std::int64_t>> sizes_;
  std::size_t parts_;
  bool uneven_;
};

}  // namespace

std::shared_ptr<const Op> make_split(const NodeSpec& spec) {
  AttributeReader reader(spec.attributes);
  const std::int64_t axis = reader.integer("axis", 0);
  std::optional<std::vector<std::int64_t>> sizes;
  if (spec.opset < 13) {
    if (reader.has("split")) sizes = reader.integers("split");
    if (spec.inputs > 1) throw Error(ErrorKind::invalid_model, "split is an attribute before opset 13, not an input");
  }
  const bool counted = spec.opset >= 18 && reader.has("num_outputs");
  if (counted && reader.integer("num_outputs", 0) != static_cast<std::int64_t>(spec.outputs))
    throw Error(ErrorKind::unsupported, fmt::format("num_outputs={} for a node with {} outputs",
                                                    reader.integer("num_outputs", 0), spec.outputs));
  reader.finish();
  return std::make_shared<Split>(axis, std::move(sizes), spec.outputs, counted);
}

}  // namespace lenslet
