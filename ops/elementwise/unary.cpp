// The operators of unary_kinds.h.

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/cuda_built.h"
#include "ops/core/by_floats.h"
#include "ops/core/checks.h"
#include "ops/core/kernel.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/unary_cuda.h"
#include "ops/elementwise/unary_kernels.h"

namespace lenslet {

namespace {

/// y = f(x), any shape.
class UnaryOp final : public Op {
 public:
  explicit UnaryOp(const UnaryFunction& f) : function(f) {}
  const UnaryFunction function;
  const UnaryRow& row() const { return row_of(function.kind); }

  std::string_view type() const override { return row().name; }
  AttributeList attributes() const override {
    AttributeList list;
    for (std::size_t i = 0; i < row().parameters.size(); ++i) {
      const auto& [name, fallback, words] = row().parameters[i];
      const float value = i == 0 ? function.a : function.b;
      if (name.empty()) continue;
      if (words[0].empty())
        list.emplace_back(name, static_cast<double>(value));
      else
        list.emplace_back(name, std::string(words[static_cast<std::size_t>(value)]));
    }
    return list;
  }
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    return {required_input(inputs, 0, "X")};
  }
  double flops(std::span<const InputInfo>, std::span<const TensorType> outputs) const override {
    return static_cast<double>(outputs[0].shape.elems());
  }
  std::size_t elementwise_inputs() const override { return any_number; }
  std::optional<Activation> as_activation(std::span<const InputInfo> inputs) const override {
    if (row().activation == Activation::Kind::none || inputs[0].type.dtype != DType::f32) return std::nullopt;
    const bool by_tanh = row().activation == Activation::Kind::gelu && function.a != 0;  // of its words the second
    if (by_tanh) return Activation{Activation::Kind::gelu_tanh};
    return Activation{row().activation, function.a, function.b};
  }
};

void run_unary(const UnaryOp& op, const KernelRun& run) {
  const Tensor& x = run.inputs[0];
  void* y = run.outputs[0].data();
  const std::int64_t count = stored_elems(x);
  if (run.cuda != nullptr) {
    if constexpr (cuda_built) cuda::unary(*run.cuda, op.function, x.dtype(), x.data(), y, count);
  } else if (x.dtype() == DType::f32 || x.dtype() == DType::bf16) {
    dispatch(x.dtype(), WithBrain<FloatTypes>(), [&]<typename T>(std::type_identity<T>) {
      run.pool->parallel_for(count, elementwise_grain, [&](std::int64_t begin, std::int64_t end, int) {
        map_floats(static_cast<const T*>(x.data()) + begin, static_cast<T*>(y) + begin, end - begin,
                   [&](const float* from, float* to, std::int64_t n) { apply_unary(op.function, from, to, n); });
      });
    });
  } else {
    dispatch(x.dtype(), UnaryTypes(), [&]<typename T>(std::type_identity<T>) {
      with_unary<T>(op.function, [&](const auto& f) {
        transform(*run.pool, count, f, static_cast<T*>(y), static_cast<const T*>(x.data()));
      });
    });
  }
}

template <UnaryKind kind>
constexpr auto kernels = on_both({.types = with_brain(row_of(kind).types),
                                  .more_on_cuda = row_of(kind).types.contains(DType::f32) ? dtypes<HalfTypes>
                                                                                          : DTypeSet(),
                                  .formats_for = formats_of_x,
                                  .tolerance = 2e-6,
                                  .in_place = input_bit(0)},
                                 bind_run<run_unary>, bind_run<run_unary>);

float value_of(const UnaryParameter& parameter, AttributeReader& reader) {
  const auto& [name, fallback, words] = parameter;
  if (name.empty()) return static_cast<float>(fallback);
  if (words[0].empty()) return static_cast<float>(reader.real(name, fallback));
  const std::string word = reader.text(name, words[0]);
  const auto found = word.empty() ? words.end() : std::find(words.begin(), words.end(), word);
  if (found == words.end()) throw Error(ErrorKind::invalid_model, fmt::format("attribute '{}' is '{}'", name, word));
  return static_cast<float>(found - words.begin());
}

std::shared_ptr<const Op> make(const NodeSpec& spec) {
  const auto* row =
      std::find_if(std::begin(unary_table), std::end(unary_table), [&](const auto& r) { return r.name == spec.name; });
  AttributeReader reader(spec);
  reader.ignore("consumed_inputs");
  const float a = value_of(row->parameters[0], reader), b = value_of(row->parameters[1], reader);
  reader.finish();
  return std::make_shared<UnaryOp>(UnaryFunction{static_cast<UnaryKind>(row - std::begin(unary_table)), a, b});
}

}  // namespace

std::span<const OpRow> unary_rows() {
#define LENSLET_ROW(NAME, DOMAIN, VERSION, ...) {#NAME, DOMAIN, VERSION, 1, 1, 1, 1, {make, kernels<UnaryKind::NAME>}},
  static constexpr OpRow rows[] = {LENSLET_UNARY_KINDS(LENSLET_ROW)};
#undef LENSLET_ROW
  return rows;
}

}  // namespace lenslet
