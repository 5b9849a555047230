// libFuzzer target: any bytes as a model (loaded, planned and run once on zeros), as a tensor and as an .npy header
// give a result or an Error.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lenslet/model.h"
#include "lenslet/runner.h"
#include "models/npy_header.h"
#include "models/onnx_reader.h"
#include "models/onnx_tensor.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace lenslet;

// Larger runs only take time.
constexpr std::size_t most_bytes = std::size_t{16} << 20;
constexpr double most_flops = 2e7;

void load_plan_run(std::span<const std::byte> bytes) {
  const Model model = Model::load_bytes(bytes, {}, "fuzz");
  PlanOptions options;
  options.device = "cpu";
  options.threads = 1;
  const PlanInfo plan = model.plan(options);
  std::size_t moved = plan.memory.peak_bytes;
  double flops = 0;
  for (const StepInfo& step : plan.steps) {
    moved += step.bytes;
    flops += step.flops;
  }
  if (moved > most_bytes || !(flops < most_flops)) return;
  std::vector<Tensor> inputs;
  for (std::size_t i = 0; i < plan.inputs.size(); ++i) {
    Tensor& input = inputs.emplace_back(model.inputs()[i].dtype, plan.inputs[i].second);
    std::fill_n(static_cast<std::byte*>(input.data()), input.bytes(), std::byte{0});
  }
  Runner(model, options).run(inputs);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  test::expect_result_or_error([bytes] { load_plan_run(bytes); });
  test::expect_result_or_error([bytes] { to_tensor(read_onnx_tensor(bytes), {}); });
  test::expect_result_or_error([bytes] { parse_npy_header(bytes); });
  return 0;
}
