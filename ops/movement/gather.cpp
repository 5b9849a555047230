// Gather: slices of axis `axis` picked by an index tensor of any rank.

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "ops/core/grain.h"
#include "ops/core/makers.h"
#include "ops/core/shape_args.h"
#include "ops/core/type_check.h"
#include "ops/movement/gather_cuda.h"

namespace lenslet {

namespace {

class Gather final : public Op {
 public:
  explicit Gather(std::int64_t axis) : axis_(axis) {}

  std::string_view type() const override { return "Gather"; }
  AttributeList attributes() const override { return {{"axis", axis_}}; }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& data = required_input(inputs, 0, "data");
    const TensorType& indices = required_input(inputs, 1, "indices");
    require_dtype("indices", indices.dtype, {DType::i64, DType::i32});
    const int axis = resolve_axis(axis_, data.shape.rank());
    const int rank = data.shape.rank() - 1 + indices.shape.rank();
    if (rank > Shape::max_rank)
      throw Error(ErrorKind::limit, fmt::format("a result of rank {}; at most {} is supported", rank, Shape::max_rank));
    AxisInts dims;
    const auto push = [&dims](std::int64_t dim) { dims.values[static_cast<std::size_t>(dims.size++)] = dim; };
    for (int i = 0; i < axis; ++i) push(data.shape[i]);
    for (const std::int64_t dim : indices.shape.dims()) push(dim);
    for (int i = axis + 1; i < data.shape.rank(); ++i) push(data.shape[i]);
    return {{data.dtype, Shape(dims.span())}};
  }
  double tolerance(std::span<const InputInfo>) const override { return 0; }

  void run_cpu(const RunContext& context) const override {
    if (context.inputs[1].dtype() == DType::i64)
      run<std::int64_t>(context);
    else
      run<std::int32_t>(context);
  }

  // Indices that a run computes would have to be checked on the device, which cannot throw: a plan must not be able to
  // read past its data. Constant ones are checked here.
  std::optional<std::string> refuse_cuda(std::span<const InputInfo> inputs) const override {
    const Tensor* indices = inputs[1].constant;
    if (indices == nullptr) return "the indices are computed by the run, where nothing can report one out of range";
    const int axis = resolve_axis(axis_, inputs[0].type.shape.rank());
    const auto wrong = indices->dtype() == DType::i64 ? outside<std::int64_t>(*indices, inputs[0].type.shape[axis])
                                                      : outside<std::int32_t>(*indices, inputs[0].type.shape[axis]);
    if (wrong) return fmt::format("index {} is outside axis {} of {}", *wrong, axis, inputs[0].type.shape.str());
    return std::nullopt;
  }
  void run_cuda(const CudaRun& run) const override {
    if constexpr (cuda_built) {
      const Tensor &data = run.inputs[0], &indices = run.inputs[1];
      const int axis = resolve_axis(axis_, data.shape().rank());
      cuda::GatherShape shape;
      for (int i = 0; i < axis; ++i) shape.outer *= data.shape()[i];
      for (int i = axis + 1; i < data.shape().rank(); ++i) shape.inner *= data.shape()[i];
      shape.dim = data.shape()[axis];
      shape.count = indices.elems();
      cuda::gather(run.context, dtype_bytes(data.dtype()), shape, data.data(), indices.data(),
                   indices.dtype() == DType::i64, run.outputs[0].data());
    }
  }

 private:
  /// The first index that is not in [-dim, dim).
  template <typename Index>
  static std::optional<std::int64_t> outside(const Tensor& indices, std::int64_t dim) {
    for (const Index index : indices.values<Index>())
      if (index < -dim || index >= dim) return index;
    return std::nullopt;
  }

  template <typename Index>
  void run(const RunContext& context) const {
    const Tensor& data = context.inputs[0];
    const std::span<const Index> indices = context.inputs[1].values<Index>();
    const int axis = resolve_axis(axis_, data.shape().rank());
    const std::int64_t dim = data.shape()[axis];
    std::int64_t outer = 1, inner = 1;
    for (int i = 0; i < axis; ++i) outer *= data.shape()[i];
    for (int i = axis + 1; i < data.shape().rank(); ++i) inner *= data.shape()[i];
    if (const auto wrong = outside<Index>(context.inputs[1], dim))
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("index {} is outside axis {} of {}", *wrong, axis, data.shape().str()));

    const std::int64_t row_bytes = inner * static_cast<std::int64_t>(dtype_bytes(data.dtype()));
    const auto count = static_cast<std::int64_t>(indices.size());
    if (row_bytes == 0) return;
    const auto* from = static_cast<const std::byte*>(data.data());
    auto* to = static_cast<std::byte*>(context.outputs[0].data());
    context.pool.parallel_for(
        outer * count, std::max<std::int64_t>(1, copy_grain_bytes / row_bytes),
        [&](std::int64_t begin, std::int64_t end, int) {
          for (std::int64_t row = begin; row < end; ++row) {
            const auto index = static_cast<std::int64_t>(indices[static_cast<std::size_t>(row % count)]);
            const std::int64_t source = row / count * dim + (index < 0 ? index + dim : index);
            std::memcpy(to + row * row_bytes, from + source * row_bytes, static_cast<std::size_t>(row_bytes));
          }
        });
  }

  std::int64_t axis_;
};

}  // namespace

std::shared_ptr<const Op> make_gather(const NodeSpec& spec) {
  AttributeReader reader(spec.attributes);
  const std::int64_t axis = reader.integer("axis", 0);
  reader.finish();
  return std::make_shared<Gather>(axis);
}

}  // namespace lenslet
