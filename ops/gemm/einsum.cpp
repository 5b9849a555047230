// Einsum: products of any number of operands, summed over the labels that the result lacks, by index arithmetic. The
// pass expand_einsum turns nearly all float32 cases into Transpose and MatMul, which are faster.

#include "ops/gemm/einsum.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/cuda_built.h"
#include "ops/core/checks.h"
#include "ops/core/grain.h"
#include "ops/core/kernel.h"
#include "ops/core/sum_tolerance.h"
#include "ops/gemm/equation.h"

namespace lenslet {
namespace {

class EinsumOp final : public Op {
 public:
  explicit EinsumOp(const NodeSpec& spec) {
    AttributeReader reader(spec);
    text_ = reader.text("equation", "");
    equation_ = parse_equation(text_);
    reader.finish();
    if (equation_.operands.size() != spec.inputs)
      throw Error(ErrorKind::invalid_model, fmt::format("equation '{}' for {} inputs", text_, spec.inputs));
    if (spec.inputs > EinsumWalk::most_operands)
      throw Error(ErrorKind::unsupported,
                  fmt::format("{} inputs (supported: up to {})", spec.inputs, EinsumWalk::most_operands));
  }

  std::string_view type() const override { return "Einsum"; }
  AttributeList attributes() const override { return {{"equation", text_}}; }
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    require_equal_dtypes(inputs);
    const EinsumWalk walk = this->walk(inputs);
    return {{inputs[0].type.dtype, Shape(std::span(walk.dims, static_cast<std::size_t>(walk.axes)))}};
  }
  double flops(std::span<const InputInfo> inputs, std::span<const TensorType>) const override {
    const EinsumWalk walk = this->walk(inputs);
    return static_cast<double>(walk.elems) * static_cast<double>(walk.gemm_k) * walk.operands;
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape& y) const override {
    AxisMap map;
    map.inputs.resize(inputs.size());
    const std::vector<AxisLabels> labels = this->labels(inputs);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      map.inputs[i].parameter = false;
      for (std::size_t d = 0; d < labels.back().size(); ++d) {
        int axis = AxisMap::none, times = 0;
        map.inputs[i].stretched[d] = true;
        for (std::size_t from = 0; from < labels[i].size(); ++from) {
          if (labels[i][from] != labels.back()[d]) continue;
          axis = static_cast<int>(from);
          ++times;
          if (inputs[i].type.shape[axis] != 1) map.inputs[i].stretched[d] = false;
        }
        if (times == 1 && inputs[i].type.shape[axis] == y[static_cast<int>(d)])
          map.inputs[i].axis[d] = static_cast<std::int8_t>(axis);
      }
    }
    return map;
  }

  EinsumWalk walk(std::span<const InputInfo> inputs) const {
    const std::vector<AxisLabels> labels = this->labels(inputs);
    std::map<int, std::int64_t> dims;
    for (std::size_t i = 0; i < inputs.size(); ++i)
      for (std::size_t d = 0; d < labels[i].size(); ++d) {
        const std::int64_t own = inputs[i].type.shape[static_cast<int>(d)];
        std::int64_t& dim = dims.emplace(labels[i][d], own).first->second;
        if (own != dim && own != 1 && dim != 1)
          throw Error(ErrorKind::invalid_model,
                      fmt::format("equation '{}': sizes {} and {} of one axis", text_, dim, own));
        if (dim == 1) dim = own;
      }
    EinsumWalk walk{.operands = static_cast<int>(inputs.size())};
    const auto steps = [&](int label, std::size_t input) {
      const Shape& shape = inputs[input].type.shape;
      std::int64_t step = 1, all = 0;
      for (int d = shape.rank() - 1; d >= 0; step *= shape[d--])
        if (labels[input][static_cast<std::size_t>(d)] == label && shape[d] != 1) all += step;
      return all;
    };
    for (const auto& [label, dim] : dims) {
      if (std::find(labels.back().begin(), labels.back().end(), label) != labels.back().end()) continue;
      if (walk.sums == EinsumWalk::most_axes)
        throw Error(ErrorKind::unsupported, fmt::format("equation '{}' sums along more than 8 axes", text_));
      walk.gemm_k = Shape{walk.gemm_k, dim}.elems();
      walk.sum_dims[walk.sums] = dim;
      for (std::size_t i = 0; i < inputs.size(); ++i) walk.sum_strides[i][walk.sums] = steps(label, i);
      ++walk.sums;
    }
    for (const int label : labels.back()) {
      const auto dim = dims.find(label);
      if (dim == dims.end())
        throw Error(ErrorKind::invalid_model,
                    fmt::format("equation '{}': no input has '{}'", text_, static_cast<char>(label)));
      if (walk.axes == EinsumWalk::most_axes)
        throw Error(ErrorKind::unsupported, fmt::format("equation '{}' has a result of more than 8 axes", text_));
      walk.dims[walk.axes] = dim->second;
      walk.elems = Shape{walk.elems, dim->second}.elems();
      for (std::size_t i = 0; i < inputs.size(); ++i) walk.strides[i][walk.axes] = steps(label, i);
      ++walk.axes;
    }
    return walk;
  }

 private:
  std::vector<AxisLabels> labels(std::span<const InputInfo> inputs) const {
    std::vector<int> ranks;
    for (std::size_t i = 0; i < equation_.operands.size(); ++i)
      ranks.push_back(required_input(inputs, i, "operand").shape.rank());
    try {
      return axis_labels(equation_, ranks);
    } catch (const Error& error) {
      throw error.within(fmt::format("equation '{}'", text_));
    }
  }

  std::string text_;
  Equation equation_;
};

std::unique_ptr<const BoundKernel> bind_einsum(const Binding& binding) {
  return bind_walk(binding.op<EinsumOp>().walk(binding.problem.inputs()));
}

double tolerance_for(const Problem& problem) {
  const EinsumWalk walk = problem.as<EinsumOp>().walk(problem.inputs());
  return sum_tolerance(walk.gemm_k);
}

constexpr auto kernels =
    on_both({.types = dtypes<EinsumTypes>, .tolerance_for = tolerance_for}, bind_einsum, bind_einsum);

}  // namespace

std::unique_ptr<const BoundKernel> bind_walk(const EinsumWalk& walk) {
  return bound([walk](const KernelRun& run) {
    const void* inputs[EinsumWalk::most_operands] = {};
    for (std::size_t i = 0; i < run.inputs.size(); ++i) inputs[i] = run.inputs[i].data();
    Tensor& y = run.outputs[0];
    if (run.cuda != nullptr) {
      if constexpr (cuda_built) cuda::einsum(*run.cuda, walk, y.dtype(), inputs, y.data());
      return;
    }
    dispatch(y.dtype(), EinsumTypes(), [&]<typename T>(std::type_identity<T>) {
      const T* x[EinsumWalk::most_operands] = {};
      for (std::size_t i = 0; i < run.inputs.size(); ++i) x[i] = static_cast<const T*>(inputs[i]);
      const std::int64_t grain = std::max<std::int64_t>(1, elementwise_grain / (16 + walk.gemm_k));
      run.pool->parallel_for(walk.elems, grain, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t i = begin; i < end; ++i) run.out<T>()[i] = walk.element<T>(i, x);
      });
    });
  });
}

OpParts einsum() { return {make_from<EinsumOp>, kernels}; }

}  // namespace lenslet
