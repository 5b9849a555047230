// Misuse of lenslet.h by apps: every case returns a status and breaks nothing.

#include <doctest/doctest.h>

#include <atomic>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "tests/allocations.h"
#include "tests/c_api/small_model.h"

namespace lenslet::test {
namespace {

template <typename Handle>
Handle* cast(const void* other) {
  return reinterpret_cast<Handle*>(const_cast<void*>(other));
}

TEST_CASE("c_api/misuse/null") {
  lenslet_model* model = cast<lenslet_model>(&model);
  CHECK(lenslet_model_load(nullptr, nullptr, &model) == LENSLET_INVALID_ARGUMENT);
  CHECK(model == nullptr);
  CHECK(last_error_says("file is NULL"));
  CHECK(lenslet_model_load("x.onnx", nullptr, nullptr) == LENSLET_INVALID_ARGUMENT);
  CHECK(lenslet_model_load_bytes(nullptr, 5, nullptr, &model) == LENSLET_INVALID_ARGUMENT);
  CHECK(lenslet_model_load_bytes(nullptr, 0, nullptr, &model) == LENSLET_INVALID_MODEL);
  CHECK(lenslet_model_count(nullptr, nullptr, nullptr) == LENSLET_INVALID_ARGUMENT);
  CHECK(last_error_says("lenslet_model is NULL"));
  lenslet_port port = sized<lenslet_port>();
  CHECK(lenslet_model_input(nullptr, 0, &port) == LENSLET_INVALID_ARGUMENT);
  CHECK(lenslet_model_output(nullptr, 0, &port) == LENSLET_INVALID_ARGUMENT);
  char* text = nullptr;
  CHECK(lenslet_model_plan_json(nullptr, nullptr, &text) == LENSLET_INVALID_ARGUMENT);
  lenslet_runner* runner = nullptr;
  CHECK(lenslet_runner_create(nullptr, nullptr, &runner) == LENSLET_INVALID_ARGUMENT);
  CHECK(lenslet_runner_plan_json(nullptr, &text) == LENSLET_INVALID_ARGUMENT);
  CHECK(lenslet_runner_input(nullptr, 0, &port) == LENSLET_INVALID_ARGUMENT);
  CHECK(lenslet_runner_output(nullptr, 0, &port) == LENSLET_INVALID_ARGUMENT);
  CHECK(lenslet_runner_run(nullptr, nullptr, 0, nullptr, 0, nullptr) == LENSLET_INVALID_ARGUMENT);
  CHECK(lenslet_runner_run_loaded(nullptr, nullptr, 0, nullptr) == LENSLET_INVALID_ARGUMENT);
  CHECK(lenslet_runner_load_image(nullptr, 0, nullptr, nullptr, 0) == LENSLET_INVALID_ARGUMENT);
  CHECK(lenslet_runner_set_observer(nullptr, nullptr, nullptr) == LENSLET_INVALID_ARGUMENT);
  lenslet_tensor tensor = sized<lenslet_tensor>();
  CHECK(lenslet_runner_result(nullptr, 0, &tensor) == LENSLET_INVALID_ARGUMENT);
  CHECK(lenslet_event_input(nullptr, 0, &tensor) == LENSLET_INVALID_ARGUMENT);
  CHECK(lenslet_event_output(nullptr, 0, &tensor) == LENSLET_INVALID_ARGUMENT);
  CHECK(lenslet_cancel_create(nullptr) == LENSLET_INVALID_ARGUMENT);
  CHECK(lenslet_cancel_request(nullptr) == LENSLET_INVALID_ARGUMENT);
  lenslet_api_version(nullptr, nullptr);
  // Freeing nothing succeeds.
  CHECK(lenslet_model_free(nullptr) == LENSLET_OK);
  CHECK(lenslet_runner_free(nullptr) == LENSLET_OK);
  CHECK(lenslet_cancel_free(nullptr) == LENSLET_OK);
  CHECK(lenslet_text_free(nullptr) == LENSLET_OK);

  CRunner c;
  const lenslet_plan_options options = on_one_thread();
  CHECK(lenslet_model_input(c.model.handle, 0, nullptr) == LENSLET_INVALID_ARGUMENT);
  CHECK(lenslet_model_plan_json(c.model.handle, &options, nullptr) == LENSLET_INVALID_ARGUMENT);
  CHECK(lenslet_runner_create(c.model.handle, &options, nullptr) == LENSLET_INVALID_ARGUMENT);
  CHECK(lenslet_runner_plan_json(c.handle, nullptr) == LENSLET_INVALID_ARGUMENT);
  CHECK(lenslet_runner_run(c.handle, nullptr, 1, nullptr, 0, nullptr) == LENSLET_INVALID_ARGUMENT);
  CHECK(last_error_says("inputs is NULL"));
  const lenslet_tensor in = c.input();
  CHECK(lenslet_runner_run(c.handle, &in, 1, nullptr, 1, nullptr) == LENSLET_INVALID_ARGUMENT);
  CHECK(lenslet_runner_load_image(c.handle, 0, nullptr, nullptr, 0) == LENSLET_INVALID_ARGUMENT);
  CHECK(c.run() == LENSLET_OK);
  CHECK(lenslet_runner_result(c.handle, 0, nullptr) == LENSLET_INVALID_ARGUMENT);
}

TEST_CASE("c_api/misuse/freed_twice_and_used_after") {
  const std::string bytes = small_onnx();
  lenslet_model* model = nullptr;
  REQUIRE(lenslet_model_load_bytes(bytes.data(), bytes.size(), nullptr, &model) == LENSLET_OK);
  const lenslet_plan_options options = on_one_thread();
  lenslet_runner* runner = nullptr;
  REQUIRE(lenslet_runner_create(model, &options, &runner) == LENSLET_OK);
  CHECK(lenslet_model_free(model) == LENSLET_OK);
  CHECK(lenslet_model_free(model) == LENSLET_INVALID_ARGUMENT);
  CHECK(last_error_says("no lenslet_model: it was freed, or is something else"));
  CHECK(lenslet_model_count(model, nullptr, nullptr) == LENSLET_INVALID_ARGUMENT);
  lenslet_runner* second = nullptr;
  CHECK(lenslet_runner_create(model, &options, &second) == LENSLET_INVALID_ARGUMENT);
  Floats x(input_floats), y(4);
  const lenslet_tensor in = tensor_of(some_input(x), {1, 3, 8, 8}), out = tensor_of(y, {1, 4});
  CHECK(lenslet_runner_run(runner, &in, 1, &out, 1, nullptr) == LENSLET_OK);  // the runner keeps its model
  CHECK(lenslet_runner_free(runner) == LENSLET_OK);
  CHECK(lenslet_runner_free(runner) == LENSLET_INVALID_ARGUMENT);
  CHECK(lenslet_runner_run(runner, &in, 1, &out, 1, nullptr) == LENSLET_INVALID_ARGUMENT);
  // Handles are not reused.
  lenslet_model* other = nullptr;
  REQUIRE(lenslet_model_load_bytes(bytes.data(), bytes.size(), nullptr, &other) == LENSLET_OK);
  CHECK(other != model);
  CHECK(lenslet_model_free(model) == LENSLET_INVALID_ARGUMENT);
  // Handles of another kind, or none at all.
  CHECK(lenslet_runner_free(cast<lenslet_runner>(other)) == LENSLET_INVALID_ARGUMENT);
  CHECK(lenslet_cancel_free(cast<lenslet_cancel>(&bytes)) == LENSLET_INVALID_ARGUMENT);
  CHECK(lenslet_model_count(cast<lenslet_model>("text"), nullptr, nullptr) == LENSLET_INVALID_ARGUMENT);
  char* text = nullptr;
  REQUIRE(lenslet_model_plan_json(other, &options, &text) == LENSLET_OK);
  CHECK(lenslet_text_free(text) == LENSLET_OK);
  CHECK(lenslet_text_free(text) == LENSLET_INVALID_ARGUMENT);
  CHECK(lenslet_model_free(other) == LENSLET_OK);
  lenslet_cancel* cancel = nullptr;
  REQUIRE(lenslet_cancel_create(&cancel) == LENSLET_OK);
  CHECK(lenslet_cancel_free(cancel) == LENSLET_OK);
  CHECK(lenslet_cancel_free(cancel) == LENSLET_INVALID_ARGUMENT);
  CHECK(lenslet_cancel_request(cancel) == LENSLET_INVALID_ARGUMENT);
}

TEST_CASE("c_api/misuse/sizes_of_structs") {
  CRunner c;
  lenslet_port port{};
  for (const std::size_t wrong :
       {std::size_t{0}, std::size_t{8}, offsetof(lenslet_port, unread) - 1, std::numeric_limits<std::size_t>::max()}) {
    port.struct_size = wrong;
    CHECK(lenslet_model_input(c.model.handle, 0, &port) == LENSLET_INVALID_ARGUMENT);
    CHECK(port.name == nullptr);
  }
  CHECK(last_error_says("struct_size is"));
  // From an older header: members that it lacks stay unchanged.
  port.struct_size = offsetof(lenslet_port, unread);
  port.unread = 77;
  CHECK(lenslet_model_input(c.model.handle, 0, &port) == LENSLET_OK);
  CHECK(std::string(port.name) == "x");
  CHECK(port.unread == 77);
  // From a newer header: later members must be 0 in an input, else it is refused; an output is zero-filled.
  struct Newer {
    lenslet_plan_options known;
    std::int64_t more = 0;
  } newer{on_one_thread()};
  newer.known.struct_size = sizeof(newer);
  char* text = nullptr;
  CHECK(lenslet_model_plan_json(c.model.handle, &newer.known, &text) == LENSLET_OK);
  CHECK(lenslet_text_free(text) == LENSLET_OK);
  newer.more = 1;
  CHECK(lenslet_model_plan_json(c.model.handle, &newer.known, &text) == LENSLET_UNSUPPORTED);
  CHECK(last_error_says("which this library does not know"));
  struct NewerPort {
    lenslet_port known;
    std::int64_t more = 7;
  } larger{sized<lenslet_port>()};
  larger.known.struct_size = sizeof(larger);
  REQUIRE(lenslet_model_input(c.model.handle, 0, &larger.known) == LENSLET_OK);
  CHECK(larger.known.struct_size == sizeof(larger));
  CHECK(larger.more == 0);
  CHECK(std::string(larger.known.name) == "x");
  // From an older header: later bytes are ignored, and a size between two versions reads no partial member.
  lenslet_plan_options older = on_one_thread();
  std::memset(reinterpret_cast<char*>(&older) + offsetof(lenslet_plan_options, layer_algorithms), 0xFF,
              sizeof(older) - offsetof(lenslet_plan_options, layer_algorithms));
  older.struct_size = offsetof(lenslet_plan_options, layer_algorithms);
  CHECK(lenslet_model_plan_json(c.model.handle, &older, &text) == LENSLET_OK);
  CHECK(lenslet_text_free(text) == LENSLET_OK);
  older.struct_size += 4;
  CHECK(lenslet_model_plan_json(c.model.handle, &older, &text) == LENSLET_OK);
  CHECK(lenslet_text_free(text) == LENSLET_OK);
  older.struct_size = offsetof(lenslet_plan_options, layer_algorithms) - 1;
  CHECK(lenslet_model_plan_json(c.model.handle, &older, &text) == LENSLET_INVALID_ARGUMENT);
  // Arrays with larger elements, and with elements of different sizes.
  struct NewerTensor {
    lenslet_tensor known;
    std::int64_t more = 0;
  } in{c.input()};
  in.known.struct_size = sizeof(in);
  const lenslet_tensor out = c.output();
  CHECK(lenslet_runner_run(c.handle, &in.known, 1, &out, 1, nullptr) == LENSLET_OK);
  lenslet_tensor two[] = {c.input(), c.input()};
  two[1].struct_size += 8;
  CHECK(lenslet_runner_run(c.handle, two, 2, &out, 1, nullptr) == LENSLET_INVALID_ARGUMENT);
  CHECK(last_error_says("in the first element"));
}

TEST_CASE("c_api/misuse/plan_options") {
  const CModel model;
  const auto status = [&](const auto& change) {
    lenslet_plan_options options = on_one_thread();
    change(options);
    lenslet_runner* runner = nullptr;
    const lenslet_status got = lenslet_runner_create(model.handle, &options, &runner);
    CHECK(runner == nullptr);
    return got;
  };
  using Options = lenslet_plan_options;
  CHECK(status([](Options& o) { o.device = "tpu"; }) == LENSLET_INVALID_ARGUMENT);
  CHECK(status([](Options& o) { o.device = "cuda:99999"; }) == LENSLET_DEVICE);
  CHECK(status([](Options& o) { o.precision = "fp16"; }) == LENSLET_UNSUPPORTED);
  CHECK(status([](Options& o) { o.conv_algorithm = "best"; }) == LENSLET_INVALID_ARGUMENT);
  CHECK(status([](Options& o) { o.batch = -1; }) == LENSLET_INVALID_ARGUMENT);
  CHECK(status([](Options& o) { o.threads = -1; }) == LENSLET_INVALID_ARGUMENT);
  CHECK(status([](Options& o) { o.flags = 1 << 20; }) == LENSLET_UNSUPPORTED);
  CHECK(status([](Options& o) { o.reserved = 1; }) == LENSLET_UNSUPPORTED);
  CHECK(status([](Options& o) { o.shape_count = 1; }) == LENSLET_INVALID_ARGUMENT);
  lenslet_named_shape shape = {sizeof(shape), nullptr, 4, 0, {1, 3, 8, 8}};
  const auto with_shape = [&] {
    return status([&](Options& o) {
      o.shapes = &shape;
      o.shape_count = 1;
    });
  };
  CHECK(with_shape() == LENSLET_INVALID_ARGUMENT);
  shape.name = "z";
  CHECK(with_shape() == LENSLET_INVALID_ARGUMENT);
  shape.name = "x";
  shape.rank = 9;
  CHECK(with_shape() == LENSLET_INVALID_ARGUMENT);
  shape.rank = 4;
  shape.dims[0] = -3;
  CHECK(with_shape() == LENSLET_INVALID_ARGUMENT);
  shape.dims[0] = std::int64_t{1} << 60;
  CHECK(with_shape() == LENSLET_LIMIT);
  const lenslet_executor no_executor = {sizeof(no_executor), nullptr, nullptr, nullptr};
  CHECK(status([&](Options& o) { o.executor = &no_executor; }) == LENSLET_INVALID_ARGUMENT);
  const lenslet_allocator no_allocator = {sizeof(no_allocator), nullptr, nullptr, nullptr, nullptr};
  CHECK(status([&](Options& o) { o.allocator = &no_allocator; }) == LENSLET_INVALID_ARGUMENT);
}

TEST_CASE("c_api/misuse/plan_options_of_layers_passes_and_values") {
  const CModel model;
  lenslet_plan_options options = on_one_thread();
  const auto status = [&] {
    lenslet_runner* runner = nullptr;
    const lenslet_status got = lenslet_runner_create(model.handle, &options, &runner);
    CHECK(lenslet_runner_free(runner) == LENSLET_OK);
    options = on_one_thread();
    return got;
  };
  options.layer_algorithm_count = 1;
  CHECK(status() == LENSLET_INVALID_ARGUMENT);
  const auto layer = [&](const char* name, const char* algorithm) {
    const lenslet_layer_algorithm one = {sizeof(one), name, algorithm};
    options.layer_algorithms = &one;
    options.layer_algorithm_count = 1;
    return status();
  };
  CHECK(layer(nullptr, "im2col") == LENSLET_INVALID_ARGUMENT);
  CHECK(layer("nowhere", "im2col") == LENSLET_INVALID_ARGUMENT);
  CHECK(last_error_says("'nowhere'"));
  CHECK(layer("conv", "best") == LENSLET_INVALID_ARGUMENT);
  CHECK(last_error_says("no algorithm of Conv is called 'best'"));
  CHECK(layer("conv", "depthwise") == LENSLET_UNSUPPORTED);

  options.disabled_pass_count = 1;
  CHECK(status() == LENSLET_INVALID_ARGUMENT);
  const auto pass = [&](const char* name) {
    options.disabled_passes = &name;
    options.disabled_pass_count = 1;
    return status();
  };
  CHECK(pass(nullptr) == LENSLET_INVALID_ARGUMENT);
  CHECK(pass("no_such_pass") == LENSLET_INVALID_ARGUMENT);
  CHECK(last_error_says("fuse_activation"));
  CHECK(pass("choose_kernels") == LENSLET_INVALID_ARGUMENT);
  CHECK(last_error_says("cannot be left out"));

  Floats x(input_floats);
  lenslet_tensor tensor = tensor_of(some_input(x), {1, 3, 8, 8});
  options.calibration_count = 1;
  CHECK(status() == LENSLET_INVALID_ARGUMENT);
  const auto calibration = [&] {
    options.calibration = &tensor;
    options.calibration_count = 1;
    return status();
  };
  CHECK(calibration() == LENSLET_OK);
  tensor.memory = LENSLET_ON_CUDA;
  CHECK(calibration() == LENSLET_INVALID_ARGUMENT);
  CHECK(last_error_says("is read on the host"));
  tensor.memory = LENSLET_ON_HOST;
  tensor.bytes -= 4;
  CHECK(calibration() == LENSLET_INVALID_ARGUMENT);
  tensor.bytes += 4;
  tensor.data = nullptr;
  CHECK(calibration() == LENSLET_INVALID_ARGUMENT);

  options.input_value_count = 1;
  CHECK(status() == LENSLET_INVALID_ARGUMENT);
  const auto value = [&](const char* name, const lenslet_tensor* of) {
    const lenslet_named_tensor one = {sizeof(one), name, of};
    options.input_values = &one;
    options.input_value_count = 1;
    return status();
  };
  CHECK(value("x", nullptr) == LENSLET_INVALID_ARGUMENT);
  CHECK(value("x", &tensor) == LENSLET_INVALID_ARGUMENT);
  tensor.data = x.data;
  CHECK(value(nullptr, &tensor) == LENSLET_INVALID_ARGUMENT);
  CHECK(value("z", &tensor) == LENSLET_INVALID_ARGUMENT);
  tensor.dtype = LENSLET_I32;
  CHECK(value("x", &tensor) == LENSLET_INVALID_ARGUMENT);
}

TEST_CASE("c_api/misuse/models") {
  lenslet_model* model = nullptr;
  CHECK(lenslet_model_load("/no/such/file.onnx", nullptr, &model) == LENSLET_IO);
  CHECK(last_error_says("/no/such/file.onnx"));
  const std::string text = "no model at all, but some words";
  lenslet_load_options options = sized<lenslet_load_options>();
  options.name = "words";
  CHECK(lenslet_model_load_bytes(text.data(), text.size(), &options, &model) == LENSLET_INVALID_MODEL);
  CHECK(last_error_says("words"));
  // Many invalid nodes: one line, followed by the others.
  ModelText unknown;
  unknown.nodes = {node("Frobnicate", {"x"}, {"a"}, "one"), node("Loop", {"a"}, {"y"}, "two")};
  unknown.inputs = {port("x", f32, {3})};
  unknown.outputs = {port("y", f32, {3})};
  const std::string bytes = unknown.bytes();
  CHECK(lenslet_model_load_bytes(bytes.data(), bytes.size(), nullptr, &model) == LENSLET_UNSUPPORTED);
  CHECK(std::string(lenslet_last_error()).find('\n') == std::string::npos);
  CHECK(std::string(lenslet_last_error_details()).find("\n") != std::string::npos);
  CHECK(std::string(lenslet_last_error_details()).find(lenslet_last_error()) == 0);
}

TEST_CASE("c_api/misuse/tensors") {
  CRunner c;
  const auto expected = c.result();
  const auto refused = [&](const auto& change, bool of_output = false) {
    lenslet_tensor in = c.input(), out = c.output();
    change(of_output ? out : in);
    CHECK(lenslet_runner_run(c.handle, &in, 1, &out, 1, nullptr) == LENSLET_INVALID_ARGUMENT);
    lenslet_tensor result = sized<lenslet_tensor>();
    CHECK(lenslet_runner_result(c.handle, 0, &result) == LENSLET_INVALID_ARGUMENT);
  };
  for (const bool of_output : {false, true}) {
    refused([](lenslet_tensor& t) { t.bytes -= 1; }, of_output);
    refused([](lenslet_tensor& t) { t.bytes += 4; }, of_output);
    refused([](lenslet_tensor& t) { t.dtype = LENSLET_I32; }, of_output);
    refused([](lenslet_tensor& t) { t.dtype = 99; }, of_output);
    refused([](lenslet_tensor& t) { t.rank = 9; }, of_output);
    refused([](lenslet_tensor& t) { t.rank = -1; }, of_output);
    refused([](lenslet_tensor& t) { t.dims[0] = 2; }, of_output);
    refused([](lenslet_tensor& t) { t.dims[1] = -3; }, of_output);
    refused([](lenslet_tensor& t) { t.memory = 2; }, of_output);
    refused([](lenslet_tensor& t) { t.memory = LENSLET_ON_CUDA; }, of_output);
    refused([](lenslet_tensor& t) { t.struct_size = 0; }, of_output);
  }
  refused([](lenslet_tensor& t) { t.data = nullptr; });
  const lenslet_tensor in = c.input(), outs[] = {c.output(), c.output()};
  CHECK(lenslet_runner_run(c.handle, &in, 0, nullptr, 0, nullptr) == LENSLET_INVALID_ARGUMENT);
  CHECK(lenslet_runner_run(c.handle, &in, 1, outs, 2, nullptr) == LENSLET_INVALID_ARGUMENT);
  lenslet_run_options options = sized<lenslet_run_options>();
  options.cuda_stream = &c;
  CHECK(c.run(&options) == LENSLET_INVALID_ARGUMENT);
  options.cuda_stream = nullptr;
  options.cancel = cast<lenslet_cancel>(&c);
  CHECK(c.run(&options) == LENSLET_INVALID_ARGUMENT);
  lenslet_tensor result = sized<lenslet_tensor>();
  CHECK(c.result() == expected);
  CHECK(lenslet_runner_result(c.handle, 1, &result) == LENSLET_INVALID_ARGUMENT);
  lenslet_port port = sized<lenslet_port>();
  CHECK(lenslet_runner_input(c.handle, 1, &port) == LENSLET_INVALID_ARGUMENT);
  CHECK(lenslet_model_output(c.model.handle, 1, &port) == LENSLET_INVALID_ARGUMENT);
  CHECK(c.result() == expected);
}

TEST_CASE("c_api/misuse/images") {
  CRunner c;
  const std::vector<std::uint8_t> pixels(std::size_t{12} * 10 * 3);
  const lenslet_image right = image_of(pixels);
  lenslet_image image = right;
  lenslet_image_spec spec = sized<lenslet_image_spec>();
  const auto status = [&](std::size_t input = 0, std::int64_t index = 0) {
    return lenslet_runner_load_image(c.handle, input, &image, &spec, index);
  };
  const auto refused = [&](const auto& change) {
    image = right;
    spec = sized<lenslet_image_spec>();
    change();
    CHECK(status() == LENSLET_INVALID_ARGUMENT);
    image = right;
    spec = sized<lenslet_image_spec>();
  };
  CHECK(status() == LENSLET_OK);
  refused([&] { image.pixels = nullptr; });
  refused([&] { image.bytes -= 1; });
  refused([&] { image.bytes += 3; });
  refused([&] { image.height = 0; });
  refused([&] { image.width = -10; });
  refused([&] { image.height = std::numeric_limits<std::int64_t>::max(); });
  refused([&] { image.channels = 2; });
  refused([&] { image.channels = 0; });
  refused([&] { image.struct_size = 3; });
  refused([&] { spec.channels = 3; });
  refused([&] { spec.resize = -1; });
  refused([&] { spec.filter = 77; });
  refused([&] { spec.crop = 2; });
  refused([&] { spec.resize = 5; });
  refused([&] { spec.pad = 3; });
  refused([&] { spec.resize_size = -5; });
  refused([&] { spec.height = 9; });
  refused([&] { spec.std[0] = std::numeric_limits<double>::quiet_NaN(); });
  spec = sized<lenslet_image_spec>();
  spec.reserved[4] = 1;
  CHECK(status() == LENSLET_UNSUPPORTED);
  spec = sized<lenslet_image_spec>();
  CHECK(status(1) == LENSLET_INVALID_ARGUMENT);
  CHECK(status(0, 1) == LENSLET_INVALID_ARGUMENT);
  CHECK(status(0, -1) == LENSLET_INVALID_ARGUMENT);
  CHECK(lenslet_runner_run_loaded(c.handle, nullptr, 0, nullptr) == LENSLET_OK);  // the image that was loaded first
}

TEST_CASE("c_api/misuse/from_a_callback") {
  struct Reaches {
    CRunner* c;
    lenslet_event_values* kept = nullptr;
    int refusals = 0;
    bool frees = false;
    static std::int32_t for_it(void* context, const lenslet_event* event) {
      Reaches& self = *static_cast<Reaches*>(context);
      self.kept = event->values;
      lenslet_tensor tensor = sized<lenslet_tensor>();
      lenslet_port port = sized<lenslet_port>();
      char* text = nullptr;
      self.refusals += self.c->run() == LENSLET_INVALID_ARGUMENT;
      self.refusals += lenslet_runner_result(self.c->handle, 0, &tensor) == LENSLET_INVALID_ARGUMENT;
      self.refusals += lenslet_runner_input(self.c->handle, 0, &port) == LENSLET_INVALID_ARGUMENT;
      self.refusals += lenslet_runner_plan_json(self.c->handle, &text) == LENSLET_INVALID_ARGUMENT;
      self.refusals += lenslet_runner_set_observer(self.c->handle, nullptr, nullptr) == LENSLET_INVALID_ARGUMENT;
      self.refusals += lenslet_event_output(event->values, 99, &tensor) == LENSLET_INVALID_ARGUMENT;
      if (self.frees && event->step == 0) CHECK(lenslet_runner_free(self.c->handle) == LENSLET_OK);
      return 0;
    }
  };
  CRunner c;
  const auto expected = c.result();
  Reaches reaches{&c};
  REQUIRE(lenslet_runner_set_observer(c.handle, Reaches::for_it, &reaches) == LENSLET_OK);
  CHECK(c.result() == expected);
  CHECK(reaches.refusals > 0);
  CHECK(reaches.refusals % 6 == 0);
  lenslet_tensor tensor = sized<lenslet_tensor>();
  CHECK(lenslet_event_output(reaches.kept, 0, &tensor) == LENSLET_INVALID_ARGUMENT);  // the event is over
  reaches.frees = true;
  CHECK(c.result() == expected);  // the active run completes normally
  CHECK(c.run() == LENSLET_INVALID_ARGUMENT);
  CHECK(lenslet_runner_free(c.handle) == LENSLET_INVALID_ARGUMENT);
}

TEST_CASE("c_api/misuse/from_two_threads") {
  struct Waits {
    std::atomic<bool> inside{false}, may_go{false};
    static std::int32_t inside_a_run(void* context, const lenslet_event*) {
      Waits& self = *static_cast<Waits*>(context);
      self.inside = true;
      self.inside.notify_all();
      self.may_go.wait(false);
      return 0;
    }
  };
  CRunner c;
  const auto expected = c.result();
  Waits waits;
  REQUIRE(lenslet_runner_set_observer(c.handle, Waits::inside_a_run, &waits) == LENSLET_OK);
  lenslet_status of_first = -1;
  {
    std::jthread first([&] { of_first = c.run(); });
    waits.inside.wait(false);
    const lenslet_tensor in = c.input();
    CHECK(lenslet_runner_run(c.handle, &in, 1, nullptr, 0, nullptr) == LENSLET_INVALID_ARGUMENT);
    CHECK(last_error_says("the runner is at work"));
    lenslet_tensor result = sized<lenslet_tensor>();
    CHECK(lenslet_runner_result(c.handle, 0, &result) == LENSLET_INVALID_ARGUMENT);
    CHECK(lenslet_runner_free(c.handle) == LENSLET_OK);  // the runner lives until the run has ended
    CHECK(lenslet_runner_free(c.handle) == LENSLET_INVALID_ARGUMENT);
    CHECK(lenslet_model_free(c.model.handle) == LENSLET_OK);
    waits.may_go = true;
    waits.may_go.notify_all();
  }
  CHECK(of_first == LENSLET_OK);
  CHECK(std::memcmp(c.y.data, expected.data(), 16) == 0);
}

TEST_CASE("c_api/misuse/one_handle_in_all_threads") {
  // Many threads use the same handles: each call succeeds or is refused, and only one free succeeds.
  CRunner c;
  std::atomic<int> frees{0}, others{0};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 6; ++t)
      threads.emplace_back([&, t] {
        Floats y(4);
        const lenslet_tensor in = c.input(), out = tensor_of(y, {1, 4});
        for (int round = 0; round < 50; ++round) {
          const lenslet_status status = lenslet_runner_run(c.handle, &in, 1, &out, 1, nullptr);
          if (status != LENSLET_OK && status != LENSLET_INVALID_ARGUMENT) ++others;
        }
        if (t % 2 == 0 && lenslet_runner_free(c.handle) == LENSLET_OK) ++frees;
      });
  }
  CHECK(frees == 1);
  CHECK(others == 0);
}

TEST_CASE("c_api/misuse/errors_are_a_threads_own") {
  CHECK(lenslet_cancel_request(nullptr) == LENSLET_INVALID_ARGUMENT);
  std::string of_other = "?";
  std::jthread([&] {
    of_other = lenslet_last_error();
    lenslet_model* model = nullptr;
    lenslet_model_load("/no/such/file.onnx", nullptr, &model);
  }).join();
  CHECK(of_other.empty());
  CHECK(last_error_says("lenslet_cancel is NULL"));
  lenslet_cancel* cancel = nullptr;
  CHECK(lenslet_cancel_create(&cancel) == LENSLET_OK);
  CHECK(last_error_says("lenslet_cancel is NULL"));  // a successful call keeps the error
  CHECK(lenslet_cancel_free(cancel) == LENSLET_OK);
}

/// Runs `call` with its first allocation refused, then its second, and so on: LENSLET_LIMIT until none is refused.
template <typename Call>
void check_short_memory(const Call& call) {
  if (!allocations_are_counted()) return;
  CHECK(call() == LENSLET_OK);
  for (int n = 0;; ++n) {
    REQUIRE(n < 100000);
    lenslet_status status = LENSLET_OK;
    bool happened = false;
    {
      const AllocationFailure failure(n, true);
      status = call();
      happened = failure.happened();
    }
    if (!happened) break;
    REQUIRE((status == LENSLET_LIMIT || status == LENSLET_OK));
    if (status == LENSLET_LIMIT) REQUIRE(std::string(lenslet_last_error()).find("memory") != std::string::npos);
  }
}

TEST_CASE("c_api/misuse/memory_is_short") {
  const std::string bytes = small_onnx();
  check_short_memory([&] {
    lenslet_model* model = nullptr;
    const lenslet_status status = lenslet_model_load_bytes(bytes.data(), bytes.size(), nullptr, &model);
    lenslet_model_free(model);
    return status;
  });
  CRunner c;
  const lenslet_plan_options options = on_one_thread();
  check_short_memory([&] {
    lenslet_runner* runner = nullptr;
    const lenslet_status status = lenslet_runner_create(c.model.handle, &options, &runner);
    lenslet_runner_free(runner);
    return status;
  });
  check_short_memory([&] {
    char* text = nullptr;
    const lenslet_status status = lenslet_runner_plan_json(c.handle, &text);
    lenslet_text_free(text);
    return status;
  });
  const lenslet_tensor in = c.input(), out = c.output();
  check_short_memory([&] { return lenslet_runner_run(c.handle, &in, 1, &out, 1, nullptr); });
  CHECK(c.run() == LENSLET_OK);
}

}  // namespace
}  // namespace lenslet::test
