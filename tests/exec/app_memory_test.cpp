// Runs on the app's memory: used in place where possible, with the same bits everywhere.

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "lenslet/runner.h"
#include "runtime/exec/model_impl.h"
#include "small_net.h"
#include "tests/allocations.h"
#include "tests/exec/embedder_cases.h"

namespace lenslet::test {
namespace {

/// Memory directly before an unmapped page, so that accesses beyond its end fault.
class Page {
 public:
  explicit Page(std::size_t bytes) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    mapped_ = (bytes + page - 1) / page * page + page;
    begin_ =
        static_cast<std::byte*>(::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    REQUIRE(begin_ != MAP_FAILED);
    ::mprotect(begin_ + mapped_ - page, page, PROT_NONE);
    data_ = begin_ + mapped_ - page - bytes;
  }
  Page(const Page&) = delete;
  Page& operator=(const Page&) = delete;
  ~Page() { ::munmap(begin_, mapped_); }
  void* data() { return data_; }
  void forbid_writing() { ::mprotect(begin_, mapped_, PROT_READ); }

 private:
  std::size_t mapped_ = 0;
  std::byte *begin_ = nullptr, *data_ = nullptr;
};

/// Where the first step reads its first input and the last one writes, in the runs of `runner`.
struct Addresses {
  explicit Addresses(Runner& runner) {
    runner.set_observer([this](const LayerEvent& event) {
      if (event.step == 0) read = event.inputs[0].data();
      written = event.outputs[0].data();
    });
  }
  const void *read = nullptr, *written = nullptr;
};

TEST_CASE("exec/app_memory/read_and_written_where_it_lies") {
  const Model model = make_model(small_net());
  const Tensor x = random_tensor({16, 3, 17, 19}, 5);  // bytes in whole lines, so that guards follow directly
  REQUIRE(x.bytes() % 64 == 0);
  Page in(x.bytes());
  std::memcpy(in.data(), x.data(), x.bytes());
  in.forbid_writing();
  for (const int threads : {1, 2}) {
    CAPTURE(threads);
    // With the same number of threads; others may select other kernels and give other bits.
    const Tensor expected = Runner(model, on_cpu(16, threads)).run(x)[0].clone();
    REQUIRE(expected.bytes() % 64 == 0);
    Page out(expected.bytes());
    Runner runner(model, on_cpu(16, threads));
    const std::array inputs{IoTensor{Tensor::view(x.dtype(), x.shape(), in.data())}};
    const std::array outputs{IoTensor{Tensor::view(DType::f32, expected.shape(), out.data())}};
    const RunOptions options{.outputs = outputs};
    std::memset(out.data(), 0xFF, expected.bytes());
    const std::span<const Tensor> given = runner.run(inputs, options);
    REQUIRE(given.size() == 1);
    CHECK(given[0].data() == out.data());
    CHECK(equal(given[0], expected));
    const AllocationCount allocations;
    runner.run(inputs, options);
    CHECK(allocations.count() == 0);
    const Tensor other = random_tensor({16, 3, 17, 19}, 6);
    std::memset(out.data(), 0xFF, expected.bytes());
    CHECK(equal(runner.run(x)[0], expected));  // in the Runner's memory again: the app's memory is unchanged
    CHECK(static_cast<const unsigned char*>(out.data())[0] == 0xFF);
    CHECK_FALSE(equal(runner.run(other)[0], expected));
    Addresses seen(runner);
    CHECK(equal(runner.run(inputs, options)[0], expected));
    CHECK(seen.read == in.data());
    CHECK(seen.written == out.data());
  }
}

TEST_CASE("exec/app_memory/copied_where_it_cannot_lie") {
  const Model model = make_model(small_net());
  const Tensor x = random_tensor({2, 3, 17, 19}, 5);
  const Tensor expected = Runner(model, on_cpu(2, 1)).run(x)[0].clone();
  Runner runner(model, on_cpu(2, 1));
  Tensor block({DType::u8, {static_cast<std::int64_t>(x.bytes() + expected.bytes() + 128)}});
  auto* const odd = static_cast<std::byte*>(block.data()) + 4;
  std::memcpy(odd, x.data(), x.bytes());
  const auto at = [&](void* in, void* out) {
    const std::array inputs{IoTensor{Tensor::view(x.dtype(), x.shape(), in)}};
    const std::array outputs{IoTensor{Tensor::view(DType::f32, expected.shape(), out)}};
    return runner.run(inputs, {.outputs = outputs})[0].clone();
  };
  CHECK(equal(at(odd, odd + x.bytes()), expected));  // neither is aligned
  {
    // Aligned to 16 bytes, as by malloc(): used in place.
    std::byte* const even = odd + 12;
    std::memmove(even, odd, x.bytes());
    std::byte* const behind = even + (x.bytes() + 15) / 16 * 16;
    Addresses seen(runner);
    CHECK(equal(at(even, behind), expected));
    CHECK(seen.read == even);
    CHECK(seen.written == behind);
    runner.set_observer({});
  }
  // No longer used in place once the app's memory is not aligned.
  const Tensor other = random_tensor({2, 3, 17, 19}, 6), of_other = Runner(model, on_cpu(2, 1)).run(other)[0].clone();
  std::memcpy(odd, other.data(), other.bytes());
  CHECK(equal(at(odd, odd + x.bytes()), of_other));
  std::memcpy(block.data(), x.data(), x.bytes());
  CHECK(equal(at(block.data(), block.data()), expected));  // the output overwrites the input
  // The Runner's outputs as inputs.
  Runner ports(make_model(ports_net()), on_cpu(1, 1));
  const Tensor y = random_tensor({1, 2, 3, 5}, 2);
  const std::span<const Tensor> first = ports.run(y);
  const std::array again{IoTensor{first[3]}};
  const Tensor relu = first[3].clone();
  CHECK(equal(ports.run(again, {})[0], relu));
}

TEST_CASE("exec/app_memory/outputs_that_no_step_makes") {
  const Model model = make_model(ports_net());
  const Tensor x = random_tensor({1, 2, 3, 5}, 2);
  std::vector<Tensor> expected;
  Runner plain(model, on_cpu(1, 1));
  for (const Tensor& output : plain.run(x)) expected.push_back(output.clone());
  Runner runner(model, on_cpu(1, 1));
  std::vector<Tensor> memory;
  std::vector<IoTensor> outputs;
  for (const Tensor& output : expected) {
    memory.emplace_back(output.dtype(), output.shape());
    outputs.push_back({memory.back()});
  }
  const std::array inputs{IoTensor{x}};
  for (const std::size_t left_out : {std::size_t{4}, std::size_t{0}, std::size_t{2}, std::size_t{3}}) {
    std::vector<IoTensor> some = outputs;
    if (left_out < some.size()) some[left_out].tensor = {};
    const std::span<const Tensor> given = runner.run(inputs, {.outputs = some});
    for (std::size_t i = 0; i < expected.size(); ++i) {
      CAPTURE(i);
      CHECK(equal(given[i], expected[i]));
      CHECK((given[i].data() == memory[i].data()) == (i != left_out));
    }
  }
}

// Two convolutions write interleaved channels, each at its own offset.
TEST_CASE("exec/app_memory/an_output_of_parts") {
  Graph graph;
  graph.name = "parts";
  const ValueId x = add_input(graph, {16, 5, 7});
  std::vector<ValueId> parts;
  for (const char* const name : {"left", "right"})
    parts.push_back(add_node(graph, "Conv", {x, add_weights(graph, name, {32, 16, 3, 3}, 0.1F, parts.size() + 1)}));
  const ValueId joined = add_node(graph, "Concat", parts, {{"axis", std::int64_t{1}}});
  add_output(graph, add_node(graph, "Transpose", {joined}, {{"perm", std::vector<std::int64_t>{0, 2, 3, 1}}}));
  const Model model = make_model(std::move(graph));
  const Tensor input = random_tensor({2, 16, 5, 7}, 5);
  Runner runner(model, on_cpu(2, 1));
  const Tensor expected = runner.run(input)[0].clone();
  Tensor memory(DType::f32, expected.shape());
  const std::array inputs{IoTensor{input}}, outputs{IoTensor{memory}};
  CHECK(equal(runner.run(inputs, {.outputs = outputs})[0], expected));
  CHECK(equal(memory, expected));
}

TEST_CASE("exec/app_memory/images") {
  Runner runner(make_model(small_net()), on_cpu(2, 1));
  const std::vector<std::uint8_t> pixels(std::size_t{20} * 20 * 3, 77);
  ImageSpec spec;
  spec.height = 17;
  spec.width = 19;
  spec.resize_size = 20;
  runner.load_image(0, {pixels.data(), 20, 20, 3}, spec);
  const Tensor expected = runner.run_loaded()[0].clone();
  const Tensor x = random_tensor({2, 3, 17, 19}, 5);
  const std::array inputs{IoTensor{x}};
  runner.run(inputs, {});  // on x itself: images still go to the Runner's memory
  const Tensor before = x.clone();
  Tensor y(DType::f32, expected.shape());
  const std::array outputs{IoTensor{y}};
  runner.load_image(0, {pixels.data(), 20, 20, 3}, spec);
  CHECK(equal(runner.run_loaded({.outputs = outputs})[0], expected));
  CHECK(equal(y, expected));
  CHECK(equal(x, before));
}

TEST_CASE("exec/app_memory/refused_by_name") {
  const Model model = make_model(small_net());
  Runner runner(model, on_cpu(1, 1));
  const Tensor x = random_tensor({1, 3, 17, 19}, 5);
  const Tensor expected = runner.run(x)[0].clone();
  Tensor y(DType::f32, expected.shape());
  const auto refused = [&](const IoTensor& input, const std::vector<IoTensor>& outputs, void* stream = nullptr) {
    const Error error = error_of([&] { runner.run({&input, 1}, {.outputs = outputs, .cuda_stream = stream}); });
    CHECK(error.kind() == ErrorKind::invalid_argument);
    return std::string(error.what());
  };
  CHECK(refused({x}, {{y}, {y}}).find("2 outputs given, the model has 1") != std::string::npos);
  CHECK(refused({x}, {{Tensor(DType::f32, {1, 6})}}).find("is wanted as float32[1,6] and comes as float32[1,5]") !=
        std::string::npos);
  CHECK(refused({x}, {{Tensor(DType::f64, {1, 5})}}).find("float64") != std::string::npos);
  CHECK(refused({Tensor()}, {}).find("is missing") != std::string::npos);
  CHECK(refused({x, true}, {}).find("for a Runner on the CPU") != std::string::npos);
  CHECK(refused({x}, {{y, true}}).find("for a Runner on the CPU") != std::string::npos);
  CHECK(refused({x}, {}, &y).find("for a Runner on the CPU") != std::string::npos);
  Runner ports(make_model(ports_net()), on_cpu(1, 1));
  Tensor shared(DType::f32, {1, 2, 3, 5});
  const std::array input{IoTensor{random_tensor({1, 2, 3, 5}, 2)}};
  const std::array twice{IoTensor{shared}, IoTensor{}, IoTensor{}, IoTensor{shared}};
  CHECK(std::string(error_of([&] { ports.run(input, {.outputs = twice}); }).what()).find("shares memory") !=
        std::string::npos);
  CHECK(equal(runner.run(x)[0], expected));
}

TEST_CASE("exec/runner/formats_with_room_are_no_nchw") {
  // With one channel nchw and nhwc are the same bytes, blocks of 8 channels are not.
  Graph graph;
  graph.name = "one channel";
  add_output(graph, add_node(graph, "Relu", {add_input(graph, {1, 3, 5})}));
  Runner runner(make_model(graph), on_cpu(1, 1));
  const Tensor blocks(DType::f32, {1, 1, 3, 5}, {.channel_block = 8});
  CHECK(kind_of([&] { runner.run(blocks); }) == ErrorKind::invalid_argument);
  const std::array input{IoTensor{Tensor(DType::f32, {1, 1, 3, 5}, formats::nhwc)}};
  for (const Tensor& y : {blocks, input[0].tensor.clone()}) {
    const std::array output{IoTensor{y}};
    if (y.format() == formats::nhwc)
      runner.run(input, {.outputs = output});
    else
      CHECK(kind_of([&] { runner.run(input, {.outputs = output}); }) == ErrorKind::invalid_argument);
  }
}

}  // namespace
}  // namespace lenslet::test
