// Runners on a CUDA device: the CPU's results, the same bits however they are launched, and clean shutdown.

#include "lenslet/runner.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/cuda/buffer.h"
#include "base/cuda/check.h"
#include "base/cuda/context.h"
#include "base/device_profile.h"
#include "lenslet/device.h"
#include "runtime/exec/cuda/network.h"
#include "runtime/exec/model_impl.h"
#include "runtime/exec/plan.h"
#include "tests/cuda/device_case.h"
#include "tests/exec/embedder_cases.h"
#include "tests/exec/late_cases.h"
#include "tests/exec/load_image_cases.h"
#include "tests/exec/small_net.h"
#include "tests/exec/timeline_check.h"

namespace lenslet::test {
namespace {

PlanOptions on_cuda(std::int64_t batch = 1, const std::string& device = "cuda") {
  PlanOptions options;
  options.batch = batch;
  options.device = device;
  return options;
}

std::vector<float> bits(const Tensor& tensor) {
  const auto values = tensor.values<float>();
  return {values.begin(), values.end()};
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Largest difference over the rms of `expected`; infinite for NaN or different sizes.
double difference(const std::vector<float>& got, const std::vector<float>& expected) {
  if (got.size() != expected.size()) return INFINITY;
  double worst = 0, squares = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double d = std::fabs(static_cast<double>(got[i]) - static_cast<double>(expected[i]));
    if (!std::isfinite(d)) return INFINITY;
    worst = std::max(worst, d);
    squares += static_cast<double>(expected[i]) * static_cast<double>(expected[i]);
  }
  return worst / std::sqrt(squares / static_cast<double>(got.size()));
}

DEVICE_CASE("cuda/runner/agrees_with_the_cpu") {
  const Model model = make_model(small_net());
  for (const std::int64_t batch : {1, 3, 8}) {
    CAPTURE(batch);
    Runner cpu(model, on_cpu(batch)), cuda(model, on_cuda(batch));
    CHECK(cuda.plan().device == "cuda:0");
    for (const std::uint64_t seed : {1U, 2U}) {
      const Tensor x = random_tensor({batch, 3, 17, 19}, seed);
      CHECK(difference(bits(cuda.run(x)[0]), bits(cpu.run(x)[0])) < 1e-4);
    }
  }
}

// Three convolutions with float16 weights, which the file computes in float32, in float16, or alternately.
DEVICE_CASE("cuda/runner/computes_in_the_types_of_the_file") {
  const auto net = [](const std::array<bool, 3>& in_half) {
    Graph graph;
    graph.name = "typed";
    const auto cast = [&](ValueId id, bool half) {
      return add_node(graph, "Cast", {id}, {{"to", std::int64_t{half ? 10 : 1}}});
    };
    ValueId y = add_input(graph, {16, 12, 12});
    bool was_half = false;
    for (std::size_t i = 0; i < in_half.size(); ++i) {
      Tensor weights = random_tensor({16, 16, 3, 3}, 30 + i);
      for (float& weight : weights.values<float>()) weight *= 0.2F;
      const ValueId stored = graph.add_constant(fmt::format("w{}", i), weights.to_dtype(DType::f16));
      if (in_half[i] != was_half) y = cast(y, in_half[i]);
      was_half = in_half[i];
      y = add_node(graph, "Conv", {y, was_half ? stored : cast(stored, false)},
                   {{"pads", std::vector<std::int64_t>{1, 1, 1, 1}}});
      y = add_node(graph, "Relu", {y});
    }
    add_output(graph, was_half ? cast(y, false) : y);
    return make_model(std::move(graph));
  };
  const Tensor x = random_tensor({1, 16, 12, 12}, 4);
  const auto compare = [&](const std::array<bool, 3>& in_half, const char* precision, double within) {
    const Model model = net(in_half);
    Runner cpu(model, on_cpu()), cuda(model, on_cuda());
    CHECK(std::string(to_string(cuda.plan().numerics)) == precision);
    CHECK(difference(bits(cuda.run(x)[0]), bits(cpu.run(x)[0])) < within);
  };
  compare({false, false, false}, "fp32", 1e-5);
  compare({true, true, true}, "fp16", 3e-2);
  compare({false, true, false}, "fp16", 3e-2);
  compare({true, false, true}, "fp16", 3e-2);
}

DEVICE_CASE("cuda/runner/every_convolution_algorithm_agrees") {
  const Model model = make_model(small_net());
  const Tensor x = random_tensor({2, 3, 17, 19}, 21);
  Runner cpu(model, on_cpu(2));
  const std::vector<float> expected = bits(cpu.run(x)[0]);
  for (const std::string& name : conv_algorithm_names("cuda")) {
    CAPTURE(name);
    PlanOptions options = on_cuda(2);
    options.conv_algorithm = name;
    options.conv_algorithm_where_accepted = true;
    Runner cuda(model, options);
    CHECK(difference(bits(cuda.run(x)[0]), expected) < 1e-4);
  }
}

DEVICE_CASE("cuda/runner/graph_and_plain_launches_agree_to_the_bit") {
  const Model model = make_model(small_net());
  PlanOptions plain_options = on_cuda(2);
  plain_options.sync_each_step = true;
  Runner recorded(model, on_cuda(2)), again(model, on_cuda(2)), plain(model, plain_options);
  const Tensor x = random_tensor({2, 3, 17, 19}, 42), other = random_tensor({2, 3, 17, 19}, 43);
  const std::vector<float> expected = bits(recorded.run(x)[0]);
  CHECK(same_bits(bits(plain.run(x)[0]), expected));
  CHECK(same_bits(bits(again.run(x)[0]), expected));
  CHECK(!same_bits(bits(recorded.run(other)[0]), expected));  // nothing of the first run was kept
  CHECK(same_bits(bits(recorded.run(x)[0]), expected));
}

// Weights of more than twice L2, of which the product's are prefetched two layers earlier: no bit changes.
DEVICE_CASE("cuda/runner/weights_that_come_early") {
  Graph graph;
  ValueId x = add_input(graph, {8, 56, 56});
  for (const char* const name : {"a", "b", "c"})
    x = add_node(graph, "Conv", {x, add_weights(graph, name, {8, 8, 3, 3}, 0.3F, 7)},
                 {{"pads", std::vector<std::int64_t>{1, 1, 1, 1}}});
  x = add_node(graph, "Flatten", {x});
  const std::int64_t gemm_k = 8 * 56 * 56;
  const std::int64_t columns = static_cast<std::int64_t>(reference_gpu().l2_bytes) * 9 / 4 / 4 / gemm_k;
  add_output(graph, add_node(graph, "Gemm", {x, add_weights(graph, "many", {gemm_k, columns}, 0.01F, 9)}));
  const Model model = make_model(graph);
  PlanOptions plain_options = on_cuda();
  plain_options.sync_each_step = true;
  Runner recorded(model, on_cuda()), plain(model, plain_options);
  const auto early = [&](const Runner& runner) {
    return std::ranges::count_if(runner.plan().steps, [](const StepInfo& step) {
      return step.reason.find("of its weights come to L2 while") != std::string::npos;
    });
  };
  if (cuda::device_profile(0).clusters) CHECK(early(recorded) == 1);
  const Tensor image = random_tensor({1, 8, 56, 56}, 42);
  const std::vector<float> expected = bits(plain.run(image)[0]);
  for (int run = 0; run < 2; ++run) CHECK(same_bits(bits(recorded.run(image)[0]), expected));
  Runner small(make_model(small_net()), on_cuda());
  CHECK(early(small) == 0);
}

DEVICE_CASE("cuda/runner/keeping_all_values_changes_no_bit") {
  const Model model = make_model(small_net());
  PlanOptions kept = on_cuda(3);
  kept.keep_all_values = true;
  Runner reuse(model, on_cuda(3)), keep(model, kept);
  const Tensor x = random_tensor({3, 3, 17, 19}, 7);
  CHECK(same_bits(bits(reuse.run(x)[0]), bits(keep.run(x)[0])));
  for (const PlacementInfo& place : reuse.plan().placements) CHECK(place.offset % 256 == 0);
}

DEVICE_CASE("cuda/runner/observer_sees_every_step_and_what_it_made") {
  const Model model = make_model(small_net());
  const Tensor x = random_tensor({2, 3, 17, 19}, 3);
  for (const bool sync_each_step : {false, true}) {
    CAPTURE(sync_each_step);
    PlanOptions options = on_cuda(2);
    options.sync_each_step = sync_each_step;
    Runner runner(model, options);
    const std::vector<float> expected = bits(runner.run(x)[0]);
    int steps = 0;
    double conv_ms = 0;
    std::map<std::string, std::vector<float>> made;  // by value name
    runner.set_observer([&](const LayerEvent& event) {
      CHECK(event.step == steps++);
      REQUIRE(event.inputs.size() == event.info->inputs.size());
      REQUIRE(event.outputs.size() == event.info->outputs.size());
      if (event.info->op == "Conv") conv_ms += event.ms;
      for (std::size_t i = 0; i < event.inputs.size(); ++i) {
        const auto found = made.find(event.info->inputs[i]);
        if (found != made.end()) CHECK(same_bits(bits(event.inputs[i]), found->second));
        if (event.info->inputs[i] == "x") CHECK(same_bits(bits(event.inputs[i]), bits(x)));
      }
      for (std::size_t i = 0; i < event.outputs.size(); ++i) {
        CHECK(event.outputs[i].shape() == event.info->output_shapes[i]);
        made[event.info->outputs[i]] = bits(event.outputs[i]);
      }
    });
    for (int round = 0; round < 2; ++round) {
      steps = 0;
      conv_ms = 0;
      made.clear();
      CHECK(same_bits(bits(runner.run(x)[0]), expected));
      CHECK(steps == static_cast<int>(runner.plan().steps.size()));
      CHECK(conv_ms > 0);
      CHECK(conv_ms < 1000);
      CHECK(same_bits(made.at(runner.plan().outputs[0].first), expected));
    }
    runner.set_observer({});
    steps = 0;
    CHECK(same_bits(bits(runner.run(x)[0]), expected));
    CHECK(steps == 0);
  }
}

DEVICE_CASE("cuda/runner/threads_with_runners_of_their_own") {
  const Model model = make_model(small_net());
  std::map<std::int64_t, std::vector<float>> expected;
  for (const std::int64_t batch : {1, 2, 3}) {
    Runner runner(model, on_cuda(batch));
    expected[batch] = bits(runner.run(random_tensor({batch, 3, 17, 19}, 5))[0]);
  }
  const Model fresh = make_model(small_net());  // the first user packs its weights
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t)
    threads.emplace_back([&, t] {
      try {
        const std::int64_t batch = 1 + t % 3;
        const Tensor x = random_tensor({batch, 3, 17, 19}, 5);
        for (int planned = 0; planned < 3; ++planned) {
          Runner runner(fresh, on_cuda(batch));
          for (int round = 0; round < 20; ++round)
            if (!same_bits(bits(runner.run(x)[0]), expected.at(batch))) ++wrong;
        }
      } catch (const std::exception& error) {
        fmt::print("thread {}: {}\n", t, error.what());
        ++wrong;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong.load() == 0);
}

DEVICE_CASE("cuda/runner/two_devices_at_once") {
  int devices = 0;
  CUDA_CHECK(cudaGetDeviceCount(&devices));
  if (!can_run("cuda/runner/two_devices_at_once", devices < 2 ? "there is no second one" : "")) return;
  const Model model = make_model(small_net());
  const Tensor x = random_tensor({2, 3, 17, 19}, 6);
  Runner reference(model, on_cuda(2));
  const std::vector<float> expected = bits(reference.run(x)[0]);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      try {
        Runner runner(model, on_cuda(2, fmt::format("cuda:{}", t % 2)));
        for (int round = 0; round < 50; ++round)
          if (difference(bits(runner.run(x)[0]), expected) > 1e-5) ++wrong;
        int current = -1;
        CUDA_CHECK(cudaGetDevice(&current));
        if (current != 0) ++wrong;  // the thread's current device is unchanged
      } catch (const std::exception& error) {
        fmt::print("thread {}: {}\n", t, error.what());
        ++wrong;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong.load() == 0);
}

DEVICE_CASE("cuda/runner/outputs_that_no_kernel_makes") {
  const Model model = make_model(ports_net());
  Runner runner(model, on_cuda(2));
  for (const std::uint64_t seed : {1U, 2U}) {
    const Tensor given = random_tensor({2, 2, 3, 5}, seed);
    const auto outputs = runner.run(given);
    REQUIRE(outputs.size() == 4);
    CHECK(same_bits(bits(outputs[0]), bits(given)));
    CHECK(outputs[1].shape() == Shape{2, 30});
    CHECK(same_bits(bits(outputs[1]), bits(given)));
    CHECK(bits(outputs[2]) == std::vector<float>{1, 2, 3});
    for (std::size_t i = 0; i < 60; ++i)
      CHECK(outputs[3].values<float>()[i] == std::max(0.0F, given.values<float>()[i]));
  }
}

DEVICE_CASE("cuda/runner/a_network_without_any_kernel") {
  const Model model = make_model(renaming_net());
  Runner runner(model, on_cuda(4));
  const Tensor& output = runner.run(Tensor(DType::f32, {4, 0, 3}))[0];
  CHECK(output.shape() == Shape{4, 0});
  CHECK(runner.time_device(2) == std::vector<double>{0, 0});
}

DEVICE_CASE("cuda/runner/loaded_photos") { check_loaded_photos("cuda"); }

DEVICE_CASE("cuda/runner/loaded_photos_of_other_types") { check_loaded_types("cuda"); }

DEVICE_CASE("cuda/runner/partly_loaded_batches") { check_partly_loaded_batches("cuda"); }

DEVICE_CASE("cuda/runner/refused_loads") { check_refused_loads("cuda"); }

DEVICE_CASE("cuda/runner/device_time") {
  const Model model = make_model(small_net());
  Runner runner(model, on_cuda(2));
  const Tensor x = random_tensor({2, 3, 17, 19}, 8);
  const std::vector<float> expected = bits(runner.run(x)[0]);
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<double> samples = runner.time_device(5);
  const std::chrono::duration<double, std::milli> all = std::chrono::steady_clock::now() - begin;
  REQUIRE(samples.size() == 5);
  for (const double ms : samples) CHECK(ms > 0);
  CHECK(std::accumulate(samples.begin(), samples.end(), 0.0) < all.count());
  CHECK(error_of([&] { runner.time_device(0); }).kind() == ErrorKind::invalid_argument);
  CHECK(same_bits(bits(runner.run(x)[0]), expected));
}

DEVICE_CASE("cuda/runner/timeline") {
  for (const std::int64_t batch : {1, 64}) {
    Runner runner(make_model(small_net()), on_cuda(batch));
    const std::array<Tensor, 1> x{random_tensor({batch, 3, 17, 19}, 8)};
    const std::vector<float> expected = bits(runner.run(x)[0]);
    const Timeline timeline = runner.timeline(x, 9);
    const std::vector<double> busy = check_timeline(timeline, runner.plan());
    CHECK(timeline.lanes[0] == "stream");
    CHECK(busy[0] > 0.95);  // steps follow each other
    // A stamp takes half a microsecond; the clock may tick in microseconds.
    CHECK(timeline.run_us < timeline.undisturbed_us + 2 * static_cast<double>(timeline.spans.size()) + 5);
    CHECK(same_bits(bits(runner.run(x)[0]), expected));
  }
  Runner empty(make_model(renaming_net()), on_cuda(4));
  CHECK(empty.timeline(std::array{Tensor(DType::f32, {4, 0, 3})}).spans.empty());
  Runner late(make_model(positive_net()), on_cuda());
  CHECK(late.timeline(std::array{Tensor::of<float>({8}, {1, -1, 2, -2, 3, -3, 4, 5})}).lanes.empty());
}

DEVICE_CASE("cuda/runner/run_takes_no_memory_and_the_end_returns_all") {
  const auto network = [] {  // x + c, c of 64 MiB
    Graph graph;
    graph.name = "large";
    const ValueId x = add_input(graph, {4096, 4096});
    const ValueId c = graph.add_constant("c", random_tensor({4096, 4096}, 1));
    add_output(graph, add_node(graph, "Add", {x, c}));
    return make_model(std::move(graph));
  };
  constexpr std::size_t weights = std::size_t{64} << 20;
  // Counts what the runtime holds, since other processes may use the device meanwhile.
  const auto& held = cuda::DeviceAllocator::held;
  const std::size_t before = held;
  {
    const Model model = network();
    Runner first(model, on_cuda());
    CHECK(first.plan().memory.uploaded_bytes == weights);
    const std::size_t with_one = held;
    Runner second(model, on_cuda());
    const std::size_t with_two = held;
    // The second has its own arena and shares the weights.
    CHECK(with_one - before == with_two - with_one + weights);
    CHECK(with_two - with_one >= first.plan().memory.peak_bytes);
    const Tensor x = random_tensor({1, 4096, 4096}, 2);
    first.run(x);
    second.run(x);
    CHECK(held == with_two);
  }
  CHECK(held == before);
}

DEVICE_CASE("cuda/plan/refuses_nodes_without_a_kernel") {
  Graph graph;
  graph.name = "elsewhere";
  const ValueId x = add_input(graph, {4});
  const ValueId pads = graph.add_constant("pads", Tensor::of<std::int64_t>(Shape{4}, {0, 1, 0, 1}));
  const ValueId value = add_node(graph, "ReduceMax", {x}, {{"keepdims", std::int64_t{0}}});
  add_output(graph, add_node(graph, "Pad", {add_node(graph, "Pad", {x, pads, value}), pads, value}));
  const Model model = make_model(std::move(graph));
  const Error error = error_of([&] { Runner(model, on_cuda()); });
  CHECK(error.kind() == ErrorKind::unsupported);
  const std::string text = error.what();
  CHECK(text.find("node Pad_1 (Pad): the constant value is computed") != std::string::npos);
  CHECK(text.find("node Pad_2 (Pad)") != std::string::npos);
}

// Its launch fails at once, as with a bad configuration, and the device stays usable.
class FailingKernel final : public BoundKernel {
 public:
  void run(const KernelRun& run) const override { CUDA_CHECK(cudaMemsetAsync(nullptr, 0, 16, run.cuda->stream)); }
};

DEVICE_CASE("cuda/runner/an_error_in_a_step_names_its_node") {
  const Model model = make_model(small_net());
  std::shared_ptr<ThreadPool> pool;
  Plan broken = *make_plan(*model.impl(), on_cuda(), pool);
  const auto guilty = std::find_if(broken.steps.begin(), broken.steps.end(), [](const PlanStep& s) { return s.runs; });
  guilty->kernel = std::make_shared<FailingKernel>();
  const cuda::CurrentDevice current(broken.device.cuda_index);
  const Error error = error_of([&] { cuda::Network(broken, std::make_shared<cuda::Session>(0)); });
  CHECK(error.kind() == ErrorKind::device);
  CHECK(std::string(error.what()).starts_with(broken.graph.node(guilty->node).label() + ": cudaMemsetAsync"));
  Runner runner(model, on_cuda());
  CHECK_NOTHROW(runner.run(random_tensor({1, 3, 17, 19}, 1)));
}

DEVICE_CASE("cuda/plan/tf32_is_near_fp32") {
  const Model model = make_model(small_net());
  PlanOptions options = on_cuda(2);
  options.numerics = parse_numerics("tf32");
  Runner exact(model, on_cuda(2)), rounded(model, options);
  CHECK(exact.plan().numerics == Numerics());
  CHECK(rounded.plan().numerics == parse_numerics("tf32"));
  const Tensor x = random_tensor({2, 3, 17, 19}, 9);
  CHECK(difference(bits(rounded.run(x)[0]), bits(exact.run(x)[0])) < 1e-2);
}

/// A Concat of branches of every kind, and another Concat of these and their results (DenseNet).
Graph joining_net() {
  using Integers = std::vector<std::int64_t>;
  Graph graph;
  graph.name = "joining";
  const auto name = [&](const char* text) { return fmt::format("{}{}", text, graph.nodes.size()); };
  const auto conv = [&](ValueId from, std::int64_t c, std::int64_t k, std::int64_t r, std::int64_t groups = 1) {
    const float scale = 1.5F / std::sqrt(static_cast<float>(c / groups * r * r));
    const ValueId w = add_weights(graph, name("w"), {k, c / groups, r, r}, scale, graph.nodes.size());
    return add_node(graph, "Conv", {from, w}, {{"pads", Integers(4, r / 2)}, {"group", groups}});
  };
  const auto pool = [&](const char* op, ValueId from, std::int64_t r) {
    return add_node(graph, op, {from},
                    {{"kernel_shape", Integers(2, r)}, {"pads", Integers(4, r / 2)}, {"strides", Integers(2, 1)}});
  };
  const auto normal = [&](ValueId from, std::int64_t c) {
    std::vector<ValueId> inputs{from};
    for (const char* of : {"scale", "bias", "mean"})
      inputs.push_back(add_weights(graph, name(of), {c}, 1, inputs.size()));
    Tensor var = random_tensor({c}, 4);
    for (float& value : var.values<float>()) value = std::fabs(value) + 0.5F;
    inputs.push_back(graph.add_constant(name("var"), std::move(var)));
    return add_node(graph, "Relu", {add_node(graph, "BatchNormalization", inputs)});
  };
  const auto concat = [&](std::vector<ValueId> parts) {
    return add_node(graph, "Concat", std::move(parts), {{"axis", std::int64_t{1}}});
  };
  const ValueId x = add_node(graph, "Relu", {conv(add_input(graph, {16, 13, 11}), 16, 32, 3)});
  const ValueId branches =
      concat({add_node(graph, "Relu", {conv(x, 32, 24, 1)}), conv(x, 32, 40, 3), conv(x, 32, 32, 3, 32),
              conv(x, 32, 32, 3, 4), pool("MaxPool", x, 3), pool("AveragePool", x, 5), pool("MaxPool", x, 7)});
  const ValueId all = concat({branches, conv(normal(branches, 224), 224, 32, 3)});
  add_output(graph, conv(normal(all, 256), 256, 8, 1));
  return graph;
}

/// A Runner that writes a Concat's inputs in place, and one that copies them.
struct Joining {
  Joining(const Model& model, PlanOptions options)
      : joined(model, options), apart(model, (options.disabled_passes = {"place_parts"}, options)) {}
  Runner joined, apart;
};

/// An observer sees each part alone, and the whole with all of them. Returns how many parts lie within others.
int check_observed_parts(Joining& runners, const Tensor& x) {
  int parts = 0;
  std::map<std::string, Tensor> made;
  runners.joined.set_observer([&](const LayerEvent& event) {
    parts += event.outputs[0].format().pixel_pitch != 0 ? 1 : 0;
    made[event.info->name] = event.outputs[0].clone().to_format(formats::nchw);
  });
  runners.apart.set_observer([&](const LayerEvent& event) {
    CHECK(equal(made.at(event.info->name), event.outputs[0].clone().to_format(formats::nchw)));
  });
  const Tensor observed = runners.joined.run(x)[0].clone();
  CHECK(equal(observed, runners.apart.run(x)[0]));
  for (Runner* runner : {&runners.joined, &runners.apart}) runner->set_observer({});  // the observers refer to locals
  return parts;
}

DEVICE_CASE("cuda/runner/what_a_concat_joins_is_written_where_it_belongs") {
  const Model model = make_model(joining_net());
  const Tensor x = random_tensor({3, 16, 13, 11}, 5);
  Runner cpu(model, on_cpu(3));
  const std::vector<float> expected = bits(cpu.run(x)[0]);
  std::vector<std::string> algorithms = conv_algorithm_names("cuda");
  algorithms.emplace_back();  // the rule's choice
  for (const auto& [precision, within] : {std::pair{"fp32", 1e-3}, {"tf32", 0.05}, {"fp16", 0.05}, {"bf16", 0.2}})
    for (const std::string& algorithm : algorithms) {
      INFO(std::string(precision), " ", algorithm);
      PlanOptions options = on_cuda(3);
      options.numerics = parse_numerics(precision);
      options.conv_algorithm = algorithm;
      options.conv_algorithm_where_accepted = true;
      Joining runners(model, options);
      const Tensor result = runners.joined.run(x)[0].clone();
      CHECK(equal(result, runners.apart.run(x)[0]));
      CHECK(difference(bits(result), expected) < within);
      const int parts = check_observed_parts(runners, x);
      CHECK(equal(result, runners.joined.run(x)[0]));
      if (algorithm != (options.numerics == Numerics() ? "implicit_gemm" : "mma_gemm")) continue;
      for (const StepInfo& step : runners.joined.plan().steps)
        if (step.op == "Concat") CHECK(step.bytes == 0);
      if (options.numerics == Numerics()) CHECK(parts == 9);
    }
}

}  // namespace
}  // namespace lenslet::test
