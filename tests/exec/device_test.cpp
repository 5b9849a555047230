// Device names, and which nodes CUDA refuses: what can be told without a device. With one: tests/cuda/runner_test.cpp.

#include "lenslet/device.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "lenslet/runner.h"
#include "ops/core/device_kind.h"
#include "runtime/exec/cuda_support.h"
#include "runtime/exec/lower.h"
#include "runtime/exec/model_impl.h"
#include "small_net.h"

namespace lenslet::test {
namespace {

bool mentions(const Error& error, const std::string& text) {
  return std::string(error.what()).find(text) != std::string::npos;
}

// Why cuda:0 cannot be used, as the report of all devices has it; empty when it can.
std::string cuda_reason() {
  const DeviceReport report = query_devices();
  for (const DeviceInfo& device : report.devices)
    if (device.id == "cuda:0") return device.reason;
  return report.cuda.reason;
}

TEST_CASE("exec/device/unknown_names") {
  for (const char* name :
       {"tpu", "CPU", "cuda0", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "cuda:99999999999", "cpu:0"}) {
    CAPTURE(name);
    const Error error = error_of([&] { choose_device(name); });
    CHECK(error.kind() == ErrorKind::invalid_argument);
    CHECK(mentions(error, name));
  }
}

TEST_CASE("exec/device/cpu") {
  const DeviceChoice cpu = choose_device("cpu");
  CHECK(cpu.id == "cpu");
  CHECK(!cpu.is_cuda());
  CHECK(cpu.note.empty());
  const PlanInfo plan = make_model(small_net()).plan(on_cpu());
  CHECK(plan.device == "cpu");
  CHECK(plan.device_note.empty());
  CHECK(plan.precision == "fp32");
  CHECK(plan.memory.uploaded_bytes == 0);
}

TEST_CASE("exec/device/auto_is_cuda_where_it_can_be_used_and_says_why_not") {
  const DeviceChoice chosen = choose_device("auto");
  const std::string reason = cuda_reason();
  CHECK(chosen.is_cuda() == reason.empty());
  CHECK(chosen.id == (reason.empty() ? "cuda:0" : "cpu"));
  if (!cuda_built || reason.empty())
    CHECK(chosen.note.empty());
  else
    CHECK(chosen.note == "device auto: using the CPU: " + reason);
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
  CHECK(error_of([] { conv_algorithm_names("tpu"); }).kind() == ErrorKind::invalid_argument);
}

TEST_CASE("exec/device/tf32_on_the_cpu_names_the_reason") {
  const Model model = make_model(small_net());
  PlanOptions options = on_cpu();
  options.precision = "tf32";
  const Error error = error_of([&] { (void)model.plan(options); });
  CHECK(error.kind() == ErrorKind::unsupported);
  CHECK(mentions(error, "tf32"));
}

class ElsewhereOp final : public Op {
 public:
  explicit ElsewhereOp(int renames) : renames_(renames) {}
  std::string_view type() const override { return "Elsewhere"; }
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override { return {inputs[0].type}; }
  int alias_input() const override { return renames_; }
  void run_cpu(const RunContext&) const override {}
  std::optional<std::string> refuse_cuda(std::span<const InputInfo> inputs) const override {
    if (inputs[0].type.shape.rank() == 2) return "rank 2 is too flat";
    return std::nullopt;
  }

 private:
  int renames_;
};

TEST_CASE("exec/device/one_error_lists_every_node_that_cuda_refuses") {
  Graph graph;
  graph.name = "mixed";
  const ValueId x = add_input(graph, {4});
  const ValueId first = add_node(graph, std::make_shared<ElsewhereOp>(-1), "first", {x});
  const ValueId renamed = add_node(graph, std::make_shared<ElsewhereOp>(0), "renamed", {first});
  add_output(graph, add_node(graph, std::make_shared<ElsewhereOp>(-1), "last", {renamed}));
  const Graph flat = lower(graph, on_cpu(), choose_device("cpu"));
  const Error error = error_of([&] { require_cuda_kernels(flat, "cuda:0"); });
  CHECK(error.kind() == ErrorKind::unsupported);
  CHECK(std::string(error.what()) ==
        "cannot run on cuda:0, and nothing is moved to the CPU:\n"
        "  node first (Elsewhere): rank 2 is too flat\n"
        "  node last (Elsewhere): rank 2 is too flat");

  Graph accepted;
  accepted.name = "accepted";
  const ValueId deep = add_input(accepted, {4, 4});
  add_output(accepted, add_node(accepted, std::make_shared<ElsewhereOp>(-1), "only", {deep}));
  CHECK_NOTHROW(require_cuda_kernels(lower(accepted, on_cpu(), choose_device("cpu")), "cuda:0"));
}

TEST_CASE("exec/device/passes_choose_among_the_algorithms_of_the_device") {
  if constexpr (!cuda_built) return;
  DeviceChoice device;  // as if there were one: passes do not touch it
  device.id = "cuda:0";
  device.cuda_index = 0;
  device.multiprocessors = 132;
  const auto names = conv_algorithm_names("cuda");
  const Graph lowered = lower(small_net(), {}, device);
  int convolutions = 0;
  for (const Node& node : lowered.nodes) {
    if (node.type() != "Conv") continue;
    ++convolutions;
    for (const auto& [name, value] : node.op->attributes())
      if (name == "algorithm")
        CHECK(std::find(names.begin(), names.end(), std::get<std::string>(value)) != names.end());
  }
  CHECK(convolutions == 2);
  PlanOptions forced;
  forced.conv_algorithm = "im2col";  // the CPU's
  CHECK(error_of([&] { lower(small_net(), forced, device); }).kind() == ErrorKind::invalid_argument);
}

}  // namespace
}  // namespace lenslet::test
