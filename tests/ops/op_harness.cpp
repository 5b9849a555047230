#include "tests/ops/op_harness.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "base/simd/targets.h"
// After targets.h:
#include <hwy/highway.h>

#include "base/small_types.h"
#include "ops/core/never.h"
#include "oracle/oracle.h"
#include "tests/expect_error.h"
#include "tests/ops/for_each_target.h"
#include "tests/ops/op_meaning.h"
#include "tests/ops/op_runner.h"

namespace lenslet::test {

namespace {

bool is_floating(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f64 || dtype == DType::f16 || dtype == DType::bf16 ||
         is_small_float(dtype);
}

void compare(const Tensor& output, const oracle::Array& exact, double tolerance, const std::string& where) {
  REQUIRE_MESSAGE(output.shape() == exact.shape, where, ": shape ", output.shape().str(), " instead of ",
                  exact.shape.str());
  REQUIRE_MESSAGE(output.dtype() == exact.dtype, where, ": type ", std::string(to_string(output.dtype())),
                  " instead of ", std::string(to_string(exact.dtype)));
  const oracle::Array got = oracle::from_tensor(output);
  // Exact results are rounded once to the output's type and must match; others are compared unrounded.
  const oracle::Array wanted = tolerance == 0 ? oracle::from_tensor(oracle::to_tensor(exact)) : exact;
  double worst = 0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < got.values.size(); ++i) {
    const double error = oracle::error_at(got.values[i], wanted, i, tolerance == 0 ? DType::f64 : exact.dtype);
    if (error > worst) {
      worst = error;
      at = i;
    }
  }
  if (!(worst <= tolerance))
    FAIL_CHECK(fmt::format("{}: element {} of {} is {:.9g} instead of {:.9g}; error {:.3g} of {:.3g}, allowed {:.3g}",
                           where, at, output.shape().str(), got.values[at], wanted.values[at], worst,
                           oracle::scale_at(wanted, at), tolerance));
}

}  // namespace

OpCase with(OpCase c, std::vector<Tensor> inputs, AttributeList attributes) {
  c.inputs = std::move(inputs);
  c.attributes = std::move(attributes);
  return c;
}

std::shared_ptr<const Op> make_op(const OpCase& c) {
  if (c.opset == 0) return make_normalised_op(c.op, c.attributes, c.inputs.size(), c.outputs);
  const OpRow* row = find_op(c.op, c.domain);
  const auto fits = [](std::size_t count, int least, int most) {
    return count >= static_cast<std::size_t>(least) && (most < 0 || count <= static_cast<std::size_t>(most));
  };
  if (row == nullptr || (c.opset != 0 && c.opset < row->min_opset && row->min_opset != never))
    throw Error(ErrorKind::unsupported, c.op + " is not in the op table");
  if (!fits(c.inputs.size(), row->min_inputs, row->max_inputs) || !fits(c.outputs, row->min_outputs, row->max_outputs))
    throw Error(ErrorKind::unsupported, c.op + " does not take so many inputs or outputs");
  if (c.opset == 0) return make_normalised_op(c.op, c.attributes, c.inputs.size(), c.outputs);
  return lenslet::make_op(c.op, c.domain, c.attributes, c.inputs.size(), c.outputs, c.opset);
}

std::vector<TensorType> infer_op(const OpCase& c) { return infer_types(*make_op(c), infos_of(c.inputs, c.constant)); }

std::string refusal(const OpCase& c) {
  try {
    infer_op(c);
  } catch (const Error& error) {
    return error.message();
  }
  return {};
}

ErrorKind infer_error(const OpCase& c) {
  INFO(c.op);
  return error_of([&] { infer_op(c); }).kind();
}

namespace {

/// Refusals of CUDA's kernels that are allowed, by a part of the reason; any other refusal fails. An empty reason:
/// there is no kernel: the steps run on the host, or the passes for CUDA make none.
struct CudaRefusal {
  std::string_view op, reason;
};
constexpr CudaRefusal cuda_refusals[] = {
    {"Attention", ""},
    {"NonMaxSuppression", ""},
    {"NonZero", ""},
    {"QuantizedAdd", ""},
    {"QuantizedAveragePool", ""},
    {"QuantizedGlobalAveragePool", ""},
    {"QuantizedMul", ""},
    {"QuantizedTable", ""},
    {"Unique", ""},
    {"Constant", "its value should have become a constant of the graph when the model was loaded"},
    {"Pad", "the constant value is computed by the run"},
    // also matches "bfloat16", which ends in "float16"
    {"Conv", "its filter is "},
    {"ConvTranspose", "its filter or bias is "},
    {"SparseConv", "its filter is "},
    {"DequantizeLinear", "input scale is "},
    {"FusedMatMul", "float16 with a known B of "},
    {"FusedMatMul", "of a transposed A of "},
    {"Gemm", "float16 with a known B of "},
    {"Gemm", "float16 with a C of "},
    {"Gemm", "of a transposed A of "},
    {"MatMul", "float16 with a known B of "},
    {"LayerNormalization", "float16 would be rounded before a Scale or B"},
    {"Mean", "float16 sums are rounded once"},
    {"Sum", "float16 sums are rounded once"},
    {"Pow", "float16 to a power of type "},
    {"Pow", " to a power of type float16"},
    {"Pow", " to a power of type bfloat16"},
    {"RMSNormalization", "float16 would be rounded before a Scale or B"},
    {"Resize", "float16 would be rounded between the axes"},
    {"ScatterElements", "of float16 (supported"},
    {"ScatterElements", "of bfloat16 (supported"},
    {"ScatterND", "of float16 (supported"},
    {"ScatterND", "of bfloat16 (supported"},
    {"FusedMatMul", "this build has no gemm_cute"},
    {"Gemm", "this build has no gemm_cute"},
    {"MatMul", "this build has no gemm_cute"},
};

/// Fails the current check unless CUDA's kernels may refuse a case of `op` for this reason.
void check_cuda_refusal(std::string_view op, const std::string& refusals, const std::string& name) {
  const bool stated = std::ranges::any_of(cuda_refusals, [&](const CudaRefusal& row) {
    return row.op == op && (row.reason.empty() ? refusals.empty() : refusals.find(row.reason) != refusals.npos);
  });
  CHECK_MESSAGE(stated, name, ": no kernel of CUDA takes it, and no row of cuda_refusals says why:", refusals);
}

/// The same without a device, by the kernels' offers for a Hopper with cuBLAS.
void check_cuda_offers(const Problem& problem, const std::string& name) {
  static const DeviceProfile hopper = [] {
    DeviceProfile device = reference_gpu();
    device.cublas_reason.clear();
    return device;
  }();
  std::string refusals;
  bool taken = false;
  for (const Kernel* kernel : kernels_of(problem.op().type(), DeviceKind::cuda)) {
    const Offer offer = kernel->offer(problem, {.device = hopper});
    taken = taken || !offer.candidates.empty();
    refusals += fmt::format(" {}: {};", kernel->name(), offer.refusal);
  }
  if (!taken) check_cuda_refusal(problem.op().type(), refusals, name);
}

}  // namespace

std::vector<Tensor> run_op(const OpCase& c) {
  const std::vector<InputInfo> infos = infos_of(c.inputs, c.constant);
  const std::shared_ptr<const Op> op = make_op(c);
  const Problem problem(op, infos, infer_types(*op, infos));
  std::string refusals;
  for (const OpRunner* runner : {&op_runner(), &cpu_op_runner()}) {
    const DeviceProfile device = runner->profiles(1).at(0);
    for (const Kernel* kernel : kernels_of(op->type(), runner->device())) {
      const Offer offer = kernel->offer(problem, {.device = device});
      if (!offer.refusal.empty()) refusals += fmt::format(" {}: {};", kernel->name(), offer.refusal);
      for (const Candidate& candidate : offer.candidates)
        return run_between_guards(*runner, {problem, *kernel, candidate, device}, c.inputs, c.op);
    }
    if (runner != &cpu_op_runner()) check_cuda_refusal(op->type(), refusals, c.op);  // and runs on the CPU
  }
  FAIL(c.op << ": no kernel takes it:" << refusals);
  return {};
}

namespace {

/// The case with all float32 inputs in a 16-bit type, and with the first only, as ONNX allows.
std::vector<OpCase> in_halves(const OpCase& c, DType half) {
  std::vector<OpCase> cases;
  const auto add_with = [&](std::size_t inputs) {
    OpCase halves = c;
    bool any = false;
    for (std::size_t i = 0; i < inputs; ++i) {
      if (c.inputs[i].empty() || c.inputs[i].dtype() != DType::f32) continue;
      oracle::Array array = oracle::from_tensor(c.inputs[i]);
      array.dtype = half;
      halves.inputs[i] = oracle::to_tensor(array);
      any = true;
    }
    if (!any) return;
    try {
      infer_op(halves);
    } catch (const Error&) {
      return;
    }
    cases.push_back(std::move(halves));
  };
  add_with(c.inputs.size());
  if (c.inputs.size() > 1) add_with(1);
  return cases;
}

enum class InstructionSets { best, every };

/// `half`: the type of in_halves(), which few of the CPU's kernels take.
void check_kernels(const OpCase& c, InstructionSets sets, std::optional<DType> half = {}) {
  const std::shared_ptr<const Op> op = make_op(c);
  std::string shapes;
  for (const Tensor& input : c.inputs) shapes += fmt::format(" {}", input.empty() ? "-" : input.shape().str());
  if (half) shapes += fmt::format(" in {}", to_string(*half));
  const std::string name = fmt::format("{}-{} {}{}", c.op, c.opset, to_string(op->attributes()), shapes);

  // For 16-bit types on demand: few of the CPU's kernels take them, and the oracle is slow.
  std::map<std::int64_t, std::vector<oracle::Array>> known;  // by reach
  const auto exact = [&](std::int64_t reach = 0) -> const std::vector<oracle::Array>& {
    if (const auto found = known.find(reach); found != known.end()) return found->second;
    std::vector<oracle::Array> arrays;
    for (const Tensor& input : c.inputs) arrays.push_back(oracle::from_tensor(input));
    auto results = oracle::run(op->type(), op->attributes(), arrays, reach);
    REQUIRE_MESSAGE(results.has_value(), name, ": the oracle does not know ", std::string(op->type()));
    REQUIRE_MESSAGE(results->size() >= c.outputs, name);
    return known[reach] = std::move(*results);
  };
  if (!half) (void)exact();

  const double limit = half && c.half_tolerance > 0 ? c.half_tolerance : c.tolerance;
  const OpRunner& runner = op_runner();
  std::vector<std::vector<int>> constant_sets{c.constant};
  if (!c.maybe_constant.empty()) {
    constant_sets.push_back(c.constant);
    constant_sets.back().insert(constant_sets.back().end(), c.maybe_constant.begin(), c.maybe_constant.end());
  }
  for (const std::vector<int>& constant : constant_sets) {
    const std::vector<InputInfo> infos = infos_of(c.inputs, constant);
    const Problem problem(op, infos, infer_types(*op, infos));
    REQUIRE_MESSAGE(problem.outputs().size() == c.outputs, name);
    const auto run_kernels = [&] {
      std::string refusals;
      int calls = 0;
      const auto run_call = [&](const Call& call, bool tf32) {
        ++calls;
        const std::string where = fmt::format("{} ({})", name, call.str());
        const std::vector<Tensor> outputs = run_between_guards(runner, call, c.inputs, where);
        const std::int64_t reach = oracle::tile_reach(call.str());
        const double bound = tf32 ? call.candidate.tolerance : std::min(limit, call.candidate.tolerance);
        for (std::size_t i = 0; i < outputs.size(); ++i)
          compare(outputs[i], exact(reach)[i], bound, fmt::format("{}, output {}", where, i));
      };
      for (const Kernel* kernel : kernels_of(op->type(), runner.device())) {
        for (const std::string& refusal :
             for_each_call(runner, problem, *kernel, 2, [&](const Call& call) { run_call(call, false); }))
          refusals += " " + refusal + ";";
        if (runner.device() == DeviceKind::cpu || half) continue;
        // From fp32, within the tolerance that it states. Products have tests of their own (tests/cuda/gemm_test.cpp).
        const auto where_it_differs = [&](const Call& call) {
          if (call.candidate.config == "tf32=yes") run_call(call, true);
        };
        (void)for_each_call(runner, problem, *kernel, 2, where_it_differs, {.multiply = Numerics::Multiply::tf32});
      }
      if (calls > 0) return;
      if (runner.device() == DeviceKind::cuda)
        check_cuda_refusal(op->type(), refusals, name);
      else if (!half)
        FAIL_CHECK(name << ": no kernel takes it:" << refusals);
    };
    if (sets == InstructionSets::every)
      on_every_instruction_set(HWY_TARGETS, run_kernels);
    else
      run_kernels();
    if (runner.device() == DeviceKind::cpu) check_cuda_offers(problem, name);
  }
  if (runner.device() == DeviceKind::cpu && !half) {
    check_unknown_attribute(c, name);
    check_round_trip(c, op, name);
    check_axis_map(c, op, name);
    check_permuted(c, op, name);
    check_formulas(c, op, name);
    check_copies(c, op, name);
  }
}

void check_in_all_types(const OpCase& c, InstructionSets sets) {
  check_kernels(c, sets);
  for (const DType half : {DType::f16, DType::bf16})
    for (const OpCase& halves : in_halves(c, half)) check_kernels(halves, sets, half);
}

}  // namespace

void check_op(const OpCase& c) { check_in_all_types(c, InstructionSets::best); }

void check_op_on_every_instruction_set(const OpCase& c) {
  if (std::getenv("LENSLET_LESSER_ONLY") == nullptr || op_runner().device() != DeviceKind::cpu)
    check_in_all_types(c, InstructionSets::every);
}

bool is_unsigned(DType dtype) {
  return dtype == DType::u8 || dtype == DType::u16 || dtype == DType::u32 || dtype == DType::u64 ||
         dtype == DType::boolean || dtype == DType::u4 || dtype == DType::u2 || dtype == DType::f8e8m0;
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
