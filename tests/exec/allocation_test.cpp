// Running allocates nothing, and a failed allocation anywhere is an Error that leaves everything unchanged.

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "base/boundary.h"
#include "lenslet/device.h"
#include "lenslet/runner.h"
#include "runtime/exec/model_impl.h"
#include "small_net.h"
#include "tests/allocations.h"
#include "tests/refused_memory.h"
#include "tests/tensors.h"

namespace lenslet::test {
namespace {

TEST_CASE("exec/runner/run_allocates_nothing") {
  const Model model = make_model(small_net());
  const Tensor x = random_tensor({2, 3, 17, 19}, 5);
  for (const int threads : {1, 2}) {
    CAPTURE(threads);
    Runner runner(model, on_cpu(2, threads));
    runner.run(x);
    const AllocationCount allocations;
    runner.run(x);
    CHECK(allocations.count() == 0);
  }
}

const std::array<std::uint8_t, 30 * 40 * 3> pixels{};

ImageSpec small_spec() {
  ImageSpec spec;
  spec.height = 17;
  spec.width = 19;
  spec.resize_size = 20;
  return spec;
}

TEST_CASE("exec/runner/run_loaded_allocates_nothing") {
  Runner runner(make_model(small_net()), on_cpu(2, 1));
  for (int round = 0; round < 2; ++round) {
    runner.load_image(0, {pixels.data(), 30, 40, 3}, small_spec(), 1);
    const AllocationCount allocations;
    runner.run_loaded();
    if (round > 0) CHECK(allocations.count() == 0);
  }
}

TEST_CASE("exec/memory/a_plan_and_a_runner") {
  const Tensor x = random_tensor({2, 3, 17, 19}, 5);
  const Model reference = make_model(small_net());
  const Tensor expected = Runner(reference, on_cpu(2, 2)).run(x)[0].clone();
  const Model model = make_model(small_net());
  model.plan(on_cpu(2, 2));
  check_refused_memory([&] { static_cast<void>(model.plan(on_cpu(2, 2))); });
  check_refused_memory([&] { static_cast<void>(model.dump("plan", on_cpu(2, 2))); });
  // A new Model each time, so that weights are packed each time.
  check_refused_memory([&] { at_boundary([&] { Runner(make_model(model.impl()->source), on_cpu(2, 2)); }); });
  Runner kept(model, on_cpu(2, 2));  // keeps the packed weights in the Model
  check_refused_memory([&] { Runner(model, on_cpu(2, 2)); });
  CHECK(equal(kept.run(x)[0], expected));
}

TEST_CASE("exec/memory/runs_and_images") {
  const Tensor x = random_tensor({2, 3, 17, 19}, 5);
  Runner runner(make_model(small_net()), on_cpu(2, 2));
  const Tensor expected = runner.run(x)[0].clone();
  std::vector<std::uint8_t> photo(30 * 40 * 3);
  for (std::size_t i = 0; i < photo.size(); ++i) photo[i] = static_cast<std::uint8_t>(i * 7);
  ImageSpec spec = small_spec();
  check_refused_memory([&] { runner.run(x); });
  check_refused_memory([&] { runner.load_image(0, {photo.data(), 30, 40, 3}, spec, 1); });
  check_refused_memory([&] { runner.set_observer([](const LayerEvent&) {}); });
  runner.set_observer({});
  // A refusal that allocates its message.
  check_refused_memory([&] {
    try {
      runner.run(random_tensor({1, 3, 17, 19}, 5));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::invalid_argument) throw;
    }
  });
  CHECK(equal(runner.run(x)[0], expected));
}

TEST_CASE("exec/memory/tensors_and_names") {
  check_refused_memory([] { Tensor::of<float>(Shape{2}, {1, 2}).to_format(formats::nhwc); });
  check_refused_memory([] { static_cast<void>(pass_names()); });
  check_refused_memory([] { static_cast<void>(conv_algorithm_names("cpu")); });
  check_refused_memory([] { static_cast<void>(op_support_table()); });
  check_refused_memory([] { static_cast<void>(query_devices()); });
  check_refused_memory([] { static_cast<void>(choose_device("cpu")); });
  std::vector<float> scores{1, 2, 3};
  check_refused_memory([&] { softmax(scores); });
  check_refused_memory([&] { static_cast<void>(top_k(scores, 2)); });
}

}  // namespace
}  // namespace lenslet::test
