// Transpose: output axis i is input axis perm[i].

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

class Transpose final : public Op {
 public:
  explicit Transpose(std::vector<std::int64_t> perm) : perm_(std::move(perm)) {}

  std::string_view type() const override { return "Transpose"; }
  AttributeList attributes() const override {
    if (perm_.empty()) return {};
    return {{"perm", perm_}};
  }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& data = required_input(inputs, 0, "data");
    const int rank = data.shape.rank();
    if (!perm_.empty() && static_cast<int>(perm_.size()) != rank)
      throw Error(ErrorKind::invalid_model,
                  fmt::format("perm has {} elements for an input of shape {}", perm_.size(), data.shape.str()));
    AxisInts dims;
    dims.size = rank;
    for (int i = 0; i < rank; ++i) dims.values[static_cast<std::size_t>(i)] = data.shape[source_axis(i, rank)];
    return {{data.dtype, Shape(dims.span())}};
  }
  double tolerance(std::span<const InputInfo>) const override { return 0; }

  void run_cpu(const RunContext& context) const override {
    const Tensor& from = context.inputs[0];
    Tensor& to = context.outputs[0];
    strided_copy(dtype_bytes(from.dtype()), loops(from.shape(), to.shape()), from.data(), to.data(), context.pool);
  }

  std::optional<std::string> refuse_cuda(std::span<const InputInfo>) const override { return std::nullopt; }
  void run_cuda(const CudaRun& run) const override {
    const Tensor& from = run.inputs[0];
    Tensor& to = run.outputs[0];
    if constexpr (cuda_built)
      cuda::strided_copy(run.context, dtype_bytes(from.dtype()), loops(from.shape(), to.shape()), from.data(),
                         to.data());
  }

 private:
  /// Over the output `to` of an input `from`.
  StridedLoops loops(const Shape& from, const Shape& to) const {
    const int rank = from.rank();
    const auto from_strides = element_strides(from, formats::nchw);
    const auto to_strides = element_strides(to, formats::nchw);
    StridedLoops loops;
    for (int i = 0; i < rank; ++i)
      loops.add(to[i], from_strides[static_cast<std::size_t>(source_axis(i, rank))],
                to_strides[static_cast<std::size_t>(i)]);
    return loops;
  }

  int source_axis(int axis, int rank) const {
    return perm_.empty() ? rank - 1 - axis : static_cast<int>(perm_[static_cast<std::size_t>(axis)]);
  }

  std::vector<std::int64_t> perm_;  ///< a permutation; empty: all axes reversed
};

}  // namespace

std::shared_ptr<const Op> make_transpose(const NodeSpec& spec) {
  AttributeReader reader(spec.attributes);
  std::vector<std::int64_t> perm = reader.integers("perm");
  reader.finish();
  std::vector<std::int64_t> sorted = perm;
  std::ranges::sort(sorted);
  for (std::size_t i = 0; i < sorted.size(); ++i)
    if (sorted[i] != static_cast<std::int64_t>(i))
      throw Error(ErrorKind::invalid_model, fmt::format("perm=[{}] is not a permutation", fmt::join(perm, ",")));
  return std::make_shared<Transpose>(std::move(perm));
}

}  // namespace lenslet
