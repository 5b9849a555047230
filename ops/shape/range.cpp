// Range: start, start + delta ... up to, not including, limit.

#include <fmt/format.h>

#include <cmath>

#include "ops/core/makers.h"
#include "ops/core/type_check.h"
#include "ops/movement/fill_cuda.h"

namespace lenslet {

namespace {

template <typename T>
T scalar(const Tensor& tensor, std::string_view name) {
  if (tensor.elems() != 1)
    throw Error(ErrorKind::invalid_model, fmt::format("{} must be a scalar, not {}", name, tensor.shape().str()));
  return tensor.values<T>()[0];
}

// ceil((limit - start) / delta), 0 when the direction is wrong.
template <typename T>
std::int64_t count(T start, T limit, T delta) {
  if (delta == T{0}) throw Error(ErrorKind::invalid_model, "delta is 0");
  // In double: exact for all ranges whose result fits a tensor, and free of overflow.
  const double steps =
      std::ceil((static_cast<double>(limit) - static_cast<double>(start)) / static_cast<double>(delta));
  if (std::isnan(steps)) throw Error(ErrorKind::invalid_model, "start, limit or delta is not a number");
  if (steps > 0x1p40) throw Error(ErrorKind::limit, "a range of more than 2^40 elements");
  return steps > 0 ? static_cast<std::int64_t>(steps) : 0;
}

template <typename T>
void fill(const RunContext& context) {
  const T start = scalar<T>(context.inputs[0], "start"), delta = scalar<T>(context.inputs[2], "delta");
  std::span<T> to = context.outputs[0].values<T>();
  // Modular arithmetic for integers: the values themselves are in range, an intermediate product may not be.
  for (std::size_t i = 0; i < to.size(); ++i) {
    if constexpr (std::is_integral_v<T>)
      to[i] = static_cast<T>(static_cast<std::uint64_t>(start) + i * static_cast<std::uint64_t>(delta));
    else
      to[i] = static_cast<T>(static_cast<double>(start) + static_cast<double>(i) * static_cast<double>(delta));
  }
}

class Range final : public Op {
 public:
  std::string_view type() const override { return "Range"; }
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    constexpr std::string_view names[] = {"start", "limit", "delta"};
    const DType dtype = required_input(inputs, 0, "start").dtype;
    require_dtype("start", dtype, {DType::f32, DType::f64, DType::i32, DType::i64});
    for (std::size_t i = 0; i < 3; ++i) {
      if (required_input(inputs, i, names[i]).dtype != dtype)
        throw Error(ErrorKind::invalid_model, "start, limit and delta must have one type");
      if (inputs[i].constant == nullptr)
        throw Error(ErrorKind::unsupported,
                    fmt::format("{} is computed from data: shapes must be known before the run", names[i]));
    }
    return {{dtype, Shape{length(dtype, inputs)}}};
  }
  double tolerance(std::span<const InputInfo>) const override { return 1e-7; }
  void run_cpu(const RunContext& context) const override {
    switch (context.outputs[0].dtype()) {
      case DType::f32:
        return fill<float>(context);
      case DType::f64:
        return fill<double>(context);
      case DType::i32:
        return fill<std::int32_t>(context);
      default:
        return fill<std::int64_t>(context);
    }
  }

  std::optional<std::string> refuse_cuda(std::span<const InputInfo>) const override { return std::nullopt; }
  bool reads_on_cuda(int, const PlanContext&) const override { return false; }
  void run_cuda(const CudaRun& run) const override {
    switch (run.outputs[0].dtype()) {
      case DType::f32:
        return fill_on_device<float>(run);
      case DType::f64:
        return fill_on_device<double>(run);
      case DType::i32:
        return fill_on_device<std::int32_t>(run);
      default:
        return fill_on_device<std::int64_t>(run);
    }
  }

 private:
  template <typename T>
  static void fill_on_device(const CudaRun& run) {
    if constexpr (cuda_built)
      cuda::fill_range(run.context, run.outputs[0].elems(), scalar<T>(run.host_inputs[0], "start"),
                       scalar<T>(run.host_inputs[2], "delta"), static_cast<T*>(run.outputs[0].data()));
  }
  template <typename T>
  static std::int64_t length_of(std::span<const InputInfo> inputs) {
    return count(scalar<T>(*inputs[0].constant, "start"), scalar<T>(*inputs[1].constant, "limit"),
                 scalar<T>(*inputs[2].constant, "delta"));
  }
  static std::int64_t length(DType dtype, std::span<const InputInfo> inputs) {
    switch (dtype) {
      case DType::f32:
        return length_of<float>(inputs);
      case DType::f64:
        return length_of<double>(inputs);
      case DType::i32:
        return length_of<std::int32_t>(inputs);
      default:
        return length_of<std::int64_t>(inputs);
    }
  }
};

}  // namespace

std::shared_ptr<const Op> make_range(const NodeSpec& spec) {
  AttributeReader(spec.attributes).finish();
  return std::make_shared<Range>();
}

}  // namespace lenslet
