#include "tests/ops/op_harness.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <span>

#include "tools/oracle/oracle.h"

namespace lenslet::test {

namespace {

constexpr std::size_t guard_bytes = 64;
constexpr auto guard = std::byte{0xA5};
constexpr auto poison = std::byte{0xFF};  // NaN in every floating-point type

/// Poisoned memory, 64-byte aligned, between two guards.
class GuardedBlock {
 public:
  explicit GuardedBlock(std::size_t bytes)
      : bytes_(bytes), memory_(DType::u8, Shape{static_cast<std::int64_t>(bytes + 2 * guard_bytes)}) {
    std::memset(begin(), static_cast<int>(guard), guard_bytes);
    std::memset(data(), static_cast<int>(poison), bytes_);
    std::memset(data() + bytes_, static_cast<int>(guard), guard_bytes);
  }
  std::byte* data() { return begin() + guard_bytes; }
  std::size_t bytes() const { return bytes_; }
  bool intact() {
    const auto ok = [](const std::byte* p) {
      return std::all_of(p, p + guard_bytes, [](std::byte b) { return b == guard; });
    };
    return ok(begin()) && ok(data() + bytes_);
  }

 private:
  std::byte* begin() { return static_cast<std::byte*>(memory_.data()); }
  std::size_t bytes_;
  Tensor memory_;
};

struct Variant {
  Layout layout = Layout::nchw;
  int threads = 1;
  std::vector<int> constant;
  int in_place = -1;  ///< the input that output 0 is written over
  std::string str() const {
    return fmt::format("{} threads={} constants={} in_place={}", to_string(layout), threads, constant.size(), in_place);
  }
};

bool contains(const std::vector<int>& list, std::size_t value) {
  return std::find(list.begin(), list.end(), static_cast<int>(value)) != list.end();
}

std::vector<InputInfo> infos_of(const std::vector<Tensor>& inputs, const std::vector<int>& constant) {
  std::vector<InputInfo> infos;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& input = inputs[i];
    infos.push_back({!input.empty(), {input.dtype(), input.shape()}, contains(constant, i) ? &input : nullptr});
  }
  return infos;
}

bool is_floating(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f64 || dtype == DType::f16 || dtype == DType::bf16;
}

double rms(const std::vector<double>& values) {
  double sum = 0;
  std::size_t finite = 0;
  for (const double value : values)
    if (std::isfinite(value)) {
      sum += value * value;
      ++finite;
    }
  return finite == 0 ? 0.0 : std::sqrt(sum / static_cast<double>(finite));
}

void compare(const Tensor& output, const oracle::Array& exact, double tolerance, const std::string& where) {
  REQUIRE_MESSAGE(output.shape() == exact.shape, where, ": shape ", output.shape().str(), " instead of ",
                  exact.shape.str());
  REQUIRE_MESSAGE(output.dtype() == exact.dtype, where, ": type ", std::string(to_string(output.dtype())),
                  " instead of ", std::string(to_string(exact.dtype)));
  const oracle::Array got = oracle::from_tensor(output);
  // Exact results are rounded once to the output's type; others are judged unrounded.
  const oracle::Array wanted = tolerance == 0 ? oracle::from_tensor(oracle::to_tensor(exact)) : exact;
  const double allowed = is_floating(exact.dtype) ? tolerance * rms(wanted.values) : 0.0;
  double worst = -1;
  std::size_t worst_index = 0;
  for (std::size_t i = 0; i < got.values.size(); ++i) {
    const double a = got.values[i], b = wanted.values[i];
    double error = std::abs(a - b);
    if (a == b || (std::isnan(a) && std::isnan(b)))
      error = 0;
    else if (std::isnan(error))
      error = std::numeric_limits<double>::infinity();
    if (error > worst) {
      worst = error;
      worst_index = i;
    }
  }
  if (worst > allowed)
    FAIL_CHECK(fmt::format("{}: element {} of {} is {:.9g} instead of {:.9g}; error {:.3g}, allowed {:.3g}", where,
                           worst_index, output.shape().str(), got.values[worst_index], wanted.values[worst_index],
                           worst, allowed));
}

std::vector<Tensor> run_variant(const Op& op, const OpCase& c, const Variant& variant, const std::string& where) {
  // Run-time inputs come in the variant's layout; constants stay as the file has them. Each input is a copy of its own
  // so that a kernel that writes to its input is found out.
  std::vector<Tensor> inputs;
  for (std::size_t i = 0; i < c.inputs.size(); ++i) {
    const Tensor& input = c.inputs[i];
    const bool moves = !input.empty() && input.shape().rank() == 4 && !contains(variant.constant, i);
    inputs.push_back(moves ? input.to_layout(variant.layout) : input.clone());
  }
  std::vector<InputInfo> infos = infos_of(inputs, variant.constant);
  std::vector<Layout> layouts;
  for (const Tensor& input : inputs) layouts.push_back(input.layout());
  const std::vector<TensorType> types = op.infer(infos);
  REQUIRE_MESSAGE(types.size() >= c.outputs, where);

  const PlanContext plan{infos, layouts, types, variant.layout, variant.threads};
  std::size_t prepared_bytes = 0;
  std::shared_ptr<const void> prepared;
  if (!op.prepare_key(plan).empty()) prepared = op.prepare(plan, prepared_bytes);

  std::vector<GuardedBlock> blocks;
  std::vector<Tensor> outputs;
  for (std::size_t i = 0; i < c.outputs; ++i) {
    const Layout layout = types[i].shape.rank() == 4 ? variant.layout : Layout::nchw;
    const auto bytes = static_cast<std::size_t>(types[i].shape.elems()) * dtype_bytes(types[i].dtype);
    outputs.push_back(Tensor::view(types[i].dtype, types[i].shape, blocks.emplace_back(bytes).data(), layout));
  }
  if (variant.in_place >= 0) {
    Tensor& overwritten = inputs[static_cast<std::size_t>(variant.in_place)];
    if (overwritten.bytes() > 0) std::memcpy(outputs[0].data(), overwritten.data(), overwritten.bytes());
    overwritten = Tensor::view(overwritten.dtype(), overwritten.shape(), outputs[0].data(), overwritten.layout());
  }
  GuardedBlock workspace(op.workspace_bytes(plan));

  std::vector<Tensor> before;
  for (const Tensor& input : inputs) before.push_back(input.clone());
  ThreadPool pool(variant.threads);
  op.run_cpu({inputs, outputs, {workspace.data(), workspace.bytes()}, prepared.get(), pool});

  for (GuardedBlock& block : blocks) CHECK_MESSAGE(block.intact(), where, ": bytes around an output were written");
  CHECK_MESSAGE(workspace.intact(), where, ": bytes around the workspace were written");
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (static_cast<int>(i) != variant.in_place && before[i].bytes() > 0)
      CHECK_MESSAGE(std::memcmp(inputs[i].data(), before[i].data(), before[i].bytes()) == 0, where, ": input ", i,
                    " was written");
  std::vector<Tensor> results;
  for (const Tensor& output : outputs) results.push_back(output.clone());
  return results;
}

// nhwc says something only when a 4-D run-time input has its bytes in another order there.
bool has_layout(const OpCase& c, const std::vector<int>& constant) {
  for (std::size_t i = 0; i < c.inputs.size(); ++i)
    if (!c.inputs[i].empty() && c.inputs[i].shape().rank() == 4 && !contains(constant, i)) return true;
  return false;
}

}  // namespace

std::shared_ptr<const Op> make_op(const OpCase& c) {
  const OpRow* row = find_op(c.op, c.domain);
  const auto fits = [](std::size_t count, int least, int most) {
    return count >= static_cast<std::size_t>(least) && (most < 0 || count <= static_cast<std::size_t>(most));
  };
  if (row == nullptr || c.opset < row->min_opset) throw Error(ErrorKind::unsupported, c.op + " is not in the op table");
  if (!fits(c.inputs.size(), row->min_inputs, row->max_inputs) || !fits(c.outputs, row->min_outputs, row->max_outputs))
    throw Error(ErrorKind::unsupported, c.op + " does not take so many inputs or outputs");
  return row->make({c.attributes, c.opset, c.inputs.size(), c.outputs});
}

std::vector<TensorType> infer_op(const OpCase& c) { return make_op(c)->infer(infos_of(c.inputs, c.constant)); }

std::vector<Tensor> run_op(const OpCase& c) {
  return run_variant(*make_op(c), c, {Layout::nchw, 1, c.constant, -1}, c.op);
}

void check_op(const OpCase& c) {
  const std::shared_ptr<const Op> op = make_op(c);
  std::string shapes;
  for (const Tensor& input : c.inputs) shapes += fmt::format(" {}", input.empty() ? "-" : input.shape().str());
  const std::string name = fmt::format("{}-{} {}{}", c.op, c.opset, to_string(op->attributes()), shapes);

  std::vector<oracle::Array> arrays;
  for (const Tensor& input : c.inputs) arrays.push_back(oracle::from_tensor(input));
  const std::optional<std::vector<oracle::Array>> exact = oracle::run(op->type(), op->attributes(), arrays);
  REQUIRE_MESSAGE(exact.has_value(), name, ": the oracle does not know ", std::string(op->type()));
  REQUIRE_MESSAGE(exact->size() >= c.outputs, name);

  std::vector<std::vector<int>> constant_sets{c.constant};
  if (!c.maybe_constant.empty()) {
    constant_sets.push_back(c.constant);
    constant_sets.back().insert(constant_sets.back().end(), c.maybe_constant.begin(), c.maybe_constant.end());
  }
  for (const std::vector<int>& constant : constant_sets) {
    const std::vector<InputInfo> infos = infos_of(c.inputs, constant);
    const std::vector<TensorType> types = op->infer(infos);
    std::vector<int> overwritten{-1};
    for (std::size_t i = 0; i < c.inputs.size(); ++i)
      if (infos[i].present && infos[i].constant == nullptr && op->may_overwrite(static_cast<int>(i)) &&
          infos[i].type == types[0])
        overwritten.push_back(static_cast<int>(i));
    for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
      if (layout == Layout::nhwc && !(has_layout(c, constant) && op->runs_in(layout, infos))) continue;
      for (const int in_place : overwritten)
        for (const int threads : {1, 2}) {
          const Variant variant{layout, threads, constant, in_place};
          const std::string where = name + " (" + variant.str() + ")";
          const std::vector<Tensor> outputs = run_variant(*op, c, variant, where);
          for (std::size_t i = 0; i < outputs.size(); ++i)
            compare(outputs[i], (*exact)[i], c.tolerance, fmt::format("{}, output {}", where, i));
        }
    }
  }
}

Tensor random_f32(Shape shape, unsigned seed, double mean, double deviation) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal(mean, deviation);
  Tensor tensor(DType::f32, shape);
  for (float& value : tensor.values<float>()) value = static_cast<float>(normal(generator));
  return tensor;
}

Tensor random_of(DType dtype, Shape shape, unsigned seed, double low, double high) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<double> uniform(low, high);
  oracle::Array array;
  array.shape = shape;
  array.dtype = dtype;
  array.values.resize(static_cast<std::size_t>(shape.elems()));
  for (double& value : array.values) value = is_floating(dtype) ? uniform(generator) : std::floor(uniform(generator));
  return oracle::to_tensor(array);
}

Tensor int64s(std::initializer_list<std::int64_t> values) {
  return Tensor::of<std::int64_t>(Shape{static_cast<std::int64_t>(values.size())}, values);
}

Tensor int64_scalar(std::int64_t value) { return Tensor::of<std::int64_t>(Shape{}, {value}); }

}  // namespace lenslet::test
