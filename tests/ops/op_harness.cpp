#include "tests/ops/op_harness.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "oracle/oracle.h"
#include "tests/ops/op_runner.h"

namespace lenslet::test {

namespace {

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

// nhwc says something only when a 4-D run-time input has its bytes in another order there.
bool has_layout(const OpCase& c, const std::vector<int>& constant) {
  for (std::size_t i = 0; i < c.inputs.size(); ++i)
    if (!c.inputs[i].empty() && c.inputs[i].shape().rank() == 4 && !contains(constant, i)) return true;
  return false;
}

}  // namespace

std::string Variant::str() const {
  return fmt::format("{} threads={} constants={} in_place={}", to_string(layout), threads, constant.size(), in_place);
}

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

std::vector<Tensor> inputs_of(const OpCase& c, const Variant& variant) {
  std::vector<Tensor> inputs;
  for (std::size_t i = 0; i < c.inputs.size(); ++i) {
    const Tensor& input = c.inputs[i];
    const bool moves = !input.empty() && input.shape().rank() == 4 && !contains(variant.constant, i);
    inputs.push_back(moves ? input.to_format(variant.layout) : input.clone());
  }
  return inputs;
}

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

ErrorKind infer_error(const OpCase& c) {
  try {
    infer_op(c);
  } catch (const Error& error) {
    return error.kind();
  }
  FAIL("nothing was refused: " << c.op);
  return ErrorKind::internal;
}

std::vector<Tensor> run_op(const OpCase& c) {
  const std::shared_ptr<const Op> op = make_op(c);
  const OpRunner* runner = &op_runner();
  if (const auto why = runner->refuse(*op, infos_of(c.inputs, c.constant))) {
    MESSAGE(c.op, ": refused here, run on the CPU: ", *why);
    runner = &cpu_op_runner();
  }
  return runner->run(*op, c, {formats::nchw, 1, c.constant, -1}, c.op);
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
    if (const auto why = op_runner().refuse(*op, infos)) {
      CHECK_MESSAGE(!why->empty(), name, " is refused without a reason");
      MESSAGE(name, ": refused: ", *why);
      continue;
    }
    std::vector<int> overwritten{-1};
    for (std::size_t i = 0; i < c.inputs.size(); ++i)
      if (infos[i].present && infos[i].constant == nullptr && op->may_overwrite(static_cast<int>(i)) &&
          infos[i].type == types[0])
        overwritten.push_back(static_cast<int>(i));
    for (const Format layout : {formats::nchw, formats::nhwc}) {
      if (layout == formats::nhwc && !(has_layout(c, constant) && op->runs_in(layout, infos))) continue;
      for (const int in_place : overwritten)
        for (const int threads : op_runner().thread_counts()) {
          const Variant variant{layout, threads, constant, in_place};
          const std::string where = name + " (" + variant.str() + ")";
          const std::vector<Tensor> outputs = op_runner().run(*op, c, variant, where);
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
