// Device names, and nodes that CUDA refuses, as far as no device is needed. With one: tests/cuda/runner_test.cpp.

#include "lenslet/device.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "base/cuda_built.h"
#include "base/device_kind.h"
#include "lenslet/runner.h"
#include "runtime/exec/device_name.h"
#include "runtime/exec/lower.h"
#include "runtime/exec/model_impl.h"
#include "runtime/graph/infer_shapes.h"
#include "runtime/passes/passes.h"
#include "small_net.h"

namespace lenslet::test {
namespace {

bool mentions(const Error& error, const std::string& text) {
  return std::string(error.what()).find(text) != std::string::npos;
}

// Why cuda:0 cannot be used, according to the report of all devices; empty if it can.
std::string cuda_reason() {
  const DeviceReport report = query_devices();
  for (const DeviceInfo& device : report.devices)
    if (device.id == "cuda:0") return device.reason;
  return report.cuda.reason;
}

TEST_CASE("exec/device/unknown_names") {
  for (const char* name :
       {"", "tpu", "CPU", "cuda0", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "cuda:99999999999", "cpu:0"}) {
    CAPTURE(name);
    const Error error = error_of([&] { choose_device(name); });
    CHECK(error.kind() == ErrorKind::invalid_argument);
    CHECK(mentions(error, name));
  }
}

// The effect of a limit is tested in tests/tools/command_test.py, since it is for the whole process.
TEST_CASE("exec/device/numbers_of_gpus") {
  CHECK(cuda_index("cuda") == 0);
  CHECK(cuda_index("cuda:0") == 0);
  CHECK(cuda_index("cuda:12") == 12);
  for (const char* const other : {"cpu", "cuda:", "cuda:-1", "cuda:1x", "cuda: 1", "auto"})
    CHECK_MESSAGE(!cuda_index(other), other);
}

TEST_CASE("exec/device/unknown_instruction_sets") {
  const std::string before = query_cpu().architecture;
  for (const char* name : {"", "avx2", "AVX9"}) {
    const Error error = error_of([&] { limit_instruction_set(name); });
    CHECK(error.kind() == ErrorKind::invalid_argument);
    CHECK(mentions(error, before));  // existing ones
  }
  CHECK(query_cpu().architecture == before);
}

TEST_CASE("exec/device/cpu") {
  const DeviceChoice cpu = choose_device("cpu");
  CHECK(cpu.id == "cpu");
  CHECK(!cpu.is_cuda());
  CHECK(cpu.note.empty());
  const PlanInfo plan = make_model(small_net()).plan(on_cpu());
  CHECK(plan.device == "cpu");
  CHECK(plan.device_note.empty());
  CHECK(plan.numerics == Numerics());
  CHECK(plan.memory.uploaded_bytes == 0);
}

TEST_CASE("exec/device/auto_is_cuda_where_it_can_be_used_and_says_why_not") {
  const DeviceChoice chosen = choose_device("auto");
  const std::string reason = cuda_reason();
  CHECK(chosen.is_cuda() == reason.empty());
  CHECK(chosen.id == (reason.empty() ? "cuda:0" : "cpu"));
  if (!cuda_built)
    CHECK(chosen.note.empty());
  else if (!reason.empty())
    CHECK(chosen.note == "device auto: using the CPU: " + reason);
  else if (const std::string note = query_devices().devices.at(1).note; !note.empty())
    CHECK(chosen.note == "cuda:0: " + note);
  else
    CHECK(chosen.note.empty());
}

TEST_CASE("exec/device/cuda_by_name_is_never_the_cpu") {
  const std::string reason = cuda_reason();
  if (reason.empty()) {
    CHECK(choose_device("cuda").id == "cuda:0");
    CHECK(choose_device("cuda:0").multiprocessors > 0);
  } else {
    for (const char* name : {"cuda", "cuda:0", "cuda:7"}) {
      const Error error = error_of([&] { choose_device(name); });
      CHECK(error.kind() == ErrorKind::device);
      CHECK(mentions(error, std::string("device '") + name + "'"));
    }
    CHECK(mentions(error_of([&] { choose_device("cuda"); }), reason));
  }
  const Model model = make_model(small_net());
  PlanOptions options;
  options.device = "cuda:99999";
  CHECK(error_of([&] { Runner(model, options); }).kind() == ErrorKind::device);
  CHECK(error_of([&] { (void)model.dump("load", options); }).kind() == ErrorKind::device);
}

TEST_CASE("exec/device/algorithm_names_need_no_device") {
  const auto names = conv_algorithm_names("cuda");
  CHECK(names.empty() == !cuda_built);
  CHECK(names == conv_algorithm_names("cuda:5"));
  CHECK(conv_algorithm_names("cpu") != names);
  for (const char* name : {"", "tpu", "cuda:", "cuda:x", "cuda:-1", "cudax"}) {
    CAPTURE(name);
    CHECK(error_of([&] { conv_algorithm_names(name); }).kind() == ErrorKind::invalid_argument);
  }
}

TEST_CASE("exec/device/tf32_on_the_cpu_names_the_reason") {
  const Model model = make_model(small_net());
  PlanOptions options = on_cpu();
  options.numerics = parse_numerics("tf32");
  const Error error = error_of([&] { (void)model.plan(options); });
  CHECK(error.kind() == ErrorKind::unsupported);
  CHECK(mentions(error, "tf32"));
}

TEST_CASE("exec/device/passes_choose_among_the_kernels_of_the_device") {
  if constexpr (!cuda_built) return;
  // As if there were a device: passes do not touch it.
  const PassContext context{.target = {reference_gpu()}, .device = "cuda:0"};
  const auto names = conv_algorithm_names("cuda");
  Graph graph = small_net();
  bind_inputs(graph, 1, {});
  infer_shapes(graph);
  for (const Pass& pass : passes().subspan(passes_before_inference)) pass.run(graph, context);
  int convolutions = 0;
  for (const Node& node : graph.nodes) {
    if (node.type() != "Conv") continue;
    ++convolutions;
    CHECK(node.choice->kernel->device() == DeviceKind::cuda);
    CHECK(std::find(names.begin(), names.end(), node.choice->kernel->name()) != names.end());
  }
  CHECK(convolutions == 2);
}

}  // namespace
}  // namespace lenslet::test
