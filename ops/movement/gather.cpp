// Gather: slices of axis `axis` picked by an index tensor of any rank.

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "ops/core/checks.h"
#include "ops/core/grain.h"
#include "ops/core/kernel.h"
#include "ops/movement/gather_cuda.h"

namespace lenslet {

namespace {

using IndexTypes = Types<std::int64_t, std::int32_t>;

class Gather final : public Op {
 public:
  explicit Gather(const NodeSpec& spec) {
    AttributeReader reader(spec);
    axis_ = reader.integer("axis", 0);
    reader.finish();
  }

  std::string_view type() const override { return "Gather"; }
  AttributeList attributes() const override { return {{"axis", axis_}}; }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& data = required_input(inputs, 0, "data");
    const TensorType& indices = required_input(inputs, 1, "indices");
    require_dtype("indices", indices.dtype, {DType::i64, DType::i32});
    const auto dims = data.shape.dims();
    const int picked = axis(data.shape.rank());
    std::vector<std::int64_t> y(dims.begin(), dims.begin() + picked);
    y.insert(y.end(), indices.shape.dims().begin(), indices.shape.dims().end());
    y.insert(y.end(), dims.begin() + picked + 1, dims.end());
    return {{data.dtype, Shape(y)}};
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape& y) const override {
    const int picked = axis(inputs[0].type.shape.rank()), count = inputs[1].type.shape.rank();
    AxisMap map = axes_kept(2, {});
    map.inputs[1].parameter = false;
    for (int i = 0; i < y.rank(); ++i) {
      const bool of_indices = i >= picked && i < picked + count;
      const int from = of_indices ? i - picked : i < picked ? i : i - count + 1;
      map.inputs[of_indices ? 1 : 0].axis[static_cast<std::size_t>(i)] = static_cast<std::int8_t>(from);
    }
    return map;
  }

  int axis(int rank) const { return resolve_axis(axis_, rank); }

 private:
  std::int64_t axis_ = 0;
};

/// "index 3 is outside axis 0 of [3,5]", or nothing.
std::optional<std::string> wrong_index(const Tensor& indices, const Shape& data, int axis) {
  return dispatch(indices.dtype(), IndexTypes(),
                  [&]<typename Index>(std::type_identity<Index>) -> std::optional<std::string> {
                    for (const Index index : indices.values<Index>())
                      if (index < -data[axis] || index >= data[axis])
                        return fmt::format("index {} is outside axis {} of {}", index, axis, data.str());
                    return std::nullopt;
                  });
}

class BoundGather final : public BoundKernel {
 public:
  /// Error(invalid_argument) when indices that are known lie outside.
  explicit BoundGather(const Binding& binding)
      : data_(binding.shape(0)),
        axis_(binding.op<Gather>().axis(data_.rank())),
        known_(binding.constant(1) != nullptr) {
    for (int i = 0; i < axis_; ++i) shape_.outer *= data_[i];
    for (int i = axis_ + 1; i < data_.rank(); ++i) shape_.inner *= data_[i];
    shape_.dim = data_[axis_];
    shape_.count = binding.shape(1).elems();
    if (known_) check(*binding.constant(1));
  }

  void run(const KernelRun& run) const override {
    const Tensor &data = run.inputs[0], &indices = run.inputs[1];
    if constexpr (cuda_built)
      if (run.cuda != nullptr)
        return cuda::gather(*run.cuda, dtype_bytes(data.dtype()), shape_, data.data(), indices.data(),
                            indices.dtype() == DType::i64, run.outputs[0].data());
    if (!known_) check(indices);
    dispatch(indices.dtype(), IndexTypes(), [&]<typename Index>(std::type_identity<Index>) {
      pick_rows(run, indices.values<Index>(), shape_.inner * static_cast<std::int64_t>(dtype_bytes(data.dtype())));
    });
  }

 private:
  void check(const Tensor& indices) const {
    if (auto wrong = wrong_index(indices, data_, axis_)) throw Error(ErrorKind::invalid_argument, std::move(*wrong));
  }

  template <typename Index>
  void pick_rows(const KernelRun& run, std::span<const Index> indices, std::int64_t row_bytes) const {
    if (row_bytes == 0) return;
    const auto* from = run.in<std::byte>(0);
    auto* to = run.out<std::byte>();
    run.pool->parallel_for(
        shape_.outer * shape_.count, std::max<std::int64_t>(1, copy_grain_bytes / row_bytes),
        [&](std::int64_t begin, std::int64_t end, int) {
          for (std::int64_t row = begin; row < end; ++row) {
            const auto index = static_cast<std::int64_t>(indices[static_cast<std::size_t>(row % shape_.count)]);
            const std::int64_t source = row / shape_.count * shape_.dim + (index < 0 ? index + shape_.dim : index);
            std::memcpy(to + row * row_bytes, from + source * row_bytes, static_cast<std::size_t>(row_bytes));
          }
        });
  }

  Shape data_;
  int axis_;
  bool known_;  ///< the indices, which were checked
  cuda::GatherShape shape_;
};

// Indices that a run computes would have to be checked on the device, which cannot throw: a plan must not be able to
// read past its data.
std::optional<std::string> refuse_cuda(const Problem& problem) {
  const Tensor* indices = problem.inputs()[1].constant;
  if (indices == nullptr) return "the indices are computed by the run, where nothing can report one out of range";
  return wrong_index(*indices, problem.shape(0), problem.as<Gather>().axis(problem.shape(0).rank()));
}

constexpr SimpleKernel kernels[] = {
    {.bind = bind<BoundGather>},
    {.device = DeviceKind::cuda, .refuse = refuse_cuda, .bind = bind<BoundGather>},
};

}  // namespace

OpParts gather() { return {make_from<Gather>, kernels}; }

}  // namespace lenslet
