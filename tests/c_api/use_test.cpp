// The promises of lenslet.h to apps that use it as documented.

#include <doctest/doctest.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "lenslet/image.h"
#include "lenslet/runner.h"
#include "lenslet/version.h"
#include "tests/c_api/small_model.h"

namespace lenslet::test {
namespace {

// The same network in C++.
Runner cpp_runner() {
  PlanOptions options;
  options.device = "cpu";
  return Runner(Model::load_bytes(bytes_of(small_onnx())), options);
}

std::vector<float> expected_of(CRunner& c) {
  Runner runner = cpp_runner();
  const std::span<const float> y = runner.run(Tensor::view(DType::f32, {1, 3, 8, 8}, c.x.data))[0].values<float>();
  return {y.begin(), y.end()};
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_CASE("c_api/use/versions") {
  CHECK(lenslet_negotiate(LENSLET_API_MAJOR, LENSLET_API_MINOR) == LENSLET_OK);
  CHECK(lenslet_negotiate(LENSLET_API_MAJOR, LENSLET_API_MINOR + 1) == LENSLET_UNSUPPORTED);
  CHECK(last_error_says("made for version 1.2 of lenslet.h"));
  CHECK(lenslet_negotiate(LENSLET_API_MAJOR + 1, 0) == LENSLET_UNSUPPORTED);
  std::uint32_t major = 0, minor = 77;
  lenslet_api_version(&major, &minor);
  CHECK(major == LENSLET_API_MAJOR);
  CHECK(minor == LENSLET_API_MINOR);
  CHECK(std::string(lenslet_version()) == LENSLET_VERSION);
  CHECK(std::string(lenslet_status_name(LENSLET_CANCELLED)) == "cancelled");
  CHECK(std::string(lenslet_status_name(LENSLET_OK)) == "ok");
  CHECK(std::string(lenslet_status_name(-1)) == "no status");
  CHECK(lenslet_dtype_bytes(LENSLET_F64) == 8);
  CHECK(lenslet_dtype_bytes(LENSLET_U2 + 1) == 0);
  CHECK(std::string(lenslet_dtype_name(LENSLET_BF16)) == "bfloat16");
  CHECK(std::string(lenslet_dtype_name(-1)).empty());
}

TEST_CASE("c_api/use/ports") {
  const CRunner c;
  std::size_t inputs = 0, outputs = 0;
  REQUIRE(lenslet_model_count(c.model.handle, &inputs, &outputs) == LENSLET_OK);
  CHECK(inputs == 1);
  CHECK(outputs == 1);
  lenslet_port port = sized<lenslet_port>();
  REQUIRE(lenslet_model_input(c.model.handle, 0, &port) == LENSLET_OK);
  CHECK(std::string(port.name) == "x");
  CHECK(port.dtype == LENSLET_F32);
  CHECK(port.rank == 4);
  CHECK(port.dims[0] == -1);
  CHECK(port.dims[3] == 8);
  CHECK(std::string(port.dim_names[0]) == "N");
  CHECK(std::string(port.dim_names[3]).empty());
  REQUIRE(lenslet_runner_input(c.handle, 0, &port) == LENSLET_OK);
  CHECK(port.dims[0] == 1);
  REQUIRE(lenslet_runner_output(c.handle, 0, &port) == LENSLET_OK);
  CHECK(std::string(port.name) == "y");
  CHECK(port.rank == 2);
  CHECK(port.dims[1] == 4);
}

TEST_CASE("c_api/use/an_input_with_a_value_is_overridden") {
  ModelText text;
  text.nodes = {node("Sub", {"x", "w"}, {"y"})};
  text.inputs = {port("x", f32, {3}), port("w", f32, {3})};
  text.outputs = {port("y", f32, {3})};
  text.initializers = {raw_tensor<float>("w", f32, {3}, {1, -2, 3})};
  lenslet_load_options options = sized<lenslet_load_options>();
  const char* names[] = {"w", "x"};
  options.overridden = names;
  for (const std::size_t inputs : {std::size_t{1}, std::size_t{2}}) {
    options.overridden_count = inputs - 1;
    const CModel model(text.bytes(), &options);
    CHECK(model.inputs() == inputs);
    const CPlanned runner(model);
    Floats x(3), w(3), y(3);
    for (std::size_t i = 0; i < 3; ++i) x.data[i] = 10, w.data[i] = static_cast<float>(i);
    const lenslet_tensor in[] = {tensor_of(x, {3}), tensor_of(w, {3})}, out = tensor_of(y, {3});
    REQUIRE(lenslet_runner_run(runner.handle, in, inputs, &out, 1, nullptr) == LENSLET_OK);
    CHECK(std::vector<float>(y.data, y.data + 3) ==
          (inputs == 1 ? std::vector<float>{9, 12, 7} : std::vector<float>{10, 9, 8}));
  }
  options.overridden_count = 2;
  const std::string bytes = text.bytes();
  lenslet_model* model = nullptr;
  CHECK(lenslet_model_load_bytes(bytes.data(), bytes.size(), &options, &model) == LENSLET_INVALID_ARGUMENT);
  CHECK(last_error_says("'x' is no input that has an initializer"));
  names[0] = nullptr;
  CHECK(lenslet_model_load_bytes(bytes.data(), bytes.size(), &options, &model) == LENSLET_INVALID_ARGUMENT);
  options.overridden = nullptr;
  CHECK(lenslet_model_load_bytes(bytes.data(), bytes.size(), &options, &model) == LENSLET_INVALID_ARGUMENT);
}

TEST_CASE("c_api/use/an_input_that_no_node_reads") {
  ModelText text;
  text.nodes = {node("Relu", {"x"}, {"y"})};
  text.inputs = {port("x", f32, {3}), port("label", i64, {1})};
  text.outputs = {port("y", f32, {3})};
  const CModel model(text.bytes());
  lenslet_port port = sized<lenslet_port>();
  REQUIRE(lenslet_model_input(model.handle, 0, &port) == LENSLET_OK);
  CHECK(port.unread == 0);
  REQUIRE(lenslet_model_input(model.handle, 1, &port) == LENSLET_OK);
  CHECK(port.unread == 1);
  const CPlanned planned(model);
  lenslet_runner* const runner = planned.handle;
  Floats x(3);
  x.data[0] = -1, x.data[1] = 2, x.data[2] = 3;
  const lenslet_tensor inputs[] = {tensor_of(x, {3}), sized<lenslet_tensor>()};
  for (const std::size_t count : {2U, 1U}) {
    REQUIRE(lenslet_runner_run(runner, inputs, count, nullptr, 0, nullptr) == LENSLET_OK);
    lenslet_tensor result = sized<lenslet_tensor>();
    REQUIRE(lenslet_runner_result(runner, 0, &result) == LENSLET_OK);
    const auto* const y = static_cast<const float*>(result.data);
    CHECK((y[0] == 0 && y[1] == 2 && y[2] == 3));
  }
  const lenslet_tensor none[] = {sized<lenslet_tensor>(), sized<lenslet_tensor>()};
  CHECK(lenslet_runner_run(runner, none, 2, nullptr, 0, nullptr) == LENSLET_INVALID_ARGUMENT);
  CHECK(last_error_says("input 'x' is missing"));
  CHECK(lenslet_runner_run(runner, nullptr, 0, nullptr, 0, nullptr) == LENSLET_INVALID_ARGUMENT);
}

TEST_CASE("c_api/use/run_on_memory_of_the_apps") {
  CRunner c;
  const std::vector<float> expected = expected_of(c);
  CHECK(c.result() == expected);
  lenslet_tensor result = sized<lenslet_tensor>();
  REQUIRE(lenslet_runner_result(c.handle, 0, &result) == LENSLET_OK);
  CHECK(result.data == c.y.data);
  const lenslet_tensor in = c.input();
  REQUIRE(lenslet_runner_run(c.handle, &in, 1, nullptr, 0, nullptr) == LENSLET_OK);
  REQUIRE(lenslet_runner_result(c.handle, 0, &result) == LENSLET_OK);
  CHECK(result.data != c.y.data);
  CHECK(result.rank == 2);
  CHECK(result.bytes == 16);
  CHECK(std::memcmp(result.data, expected.data(), 16) == 0);
  lenslet_tensor none = sized<lenslet_tensor>();  // one for each output; not requested
  REQUIRE(lenslet_runner_run(c.handle, &in, 1, &none, 1, nullptr) == LENSLET_OK);
  REQUIRE(lenslet_runner_result(c.handle, 0, &result) == LENSLET_OK);
  CHECK(std::memcmp(result.data, expected.data(), 16) == 0);
}

TEST_CASE("c_api/use/images") {
  CRunner c;
  std::vector<std::uint8_t> pixels(std::size_t{12} * 10 * 3);
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(i * 5);
  ImageSpec spec;
  spec.height = spec.width = 8;
  spec.resize_size = 9;
  spec.channels = ImageSpec::Channels::bgr;
  spec.filter = ImageSpec::Filter::bicubic;
  spec.scale = 1 / 255.0;
  spec.mean = {0.5, 0.25, 0.125};
  spec.std = {2, 1, 4};
  Runner runner = cpp_runner();
  runner.load_image(0, {pixels.data(), 12, 10, 3}, spec);
  const Tensor expected = runner.run_loaded()[0].clone();

  const lenslet_image image = image_of(pixels);
  lenslet_image_spec same = sized<lenslet_image_spec>();
  same.resize_size = 9;
  same.channels = LENSLET_CHANNELS_BGR;
  same.filter = LENSLET_FILTER_BICUBIC;
  same.scale = 1 / 255.0;
  std::memcpy(same.mean, spec.mean.data(), sizeof(same.mean));
  std::memcpy(same.std, spec.std.data(), sizeof(same.std));
  same.std[1] = 0;  // 1
  REQUIRE_MESSAGE(lenslet_runner_load_image(c.handle, 0, &image, &same, 0) == LENSLET_OK, lenslet_last_error());
  const lenslet_tensor out = c.output();
  REQUIRE(lenslet_runner_run_loaded(c.handle, &out, 1, nullptr) == LENSLET_OK);
  CHECK(std::memcmp(c.y.data, expected.data(), expected.bytes()) == 0);
  CHECK(lenslet_runner_run_loaded(c.handle, nullptr, 0, nullptr) == LENSLET_INVALID_ARGUMENT);
  CHECK(last_error_says("no image was loaded"));
}

TEST_CASE("c_api/use/letterbox") {
  CRunner c;
  std::vector<std::uint8_t> pixels(std::size_t{12} * 10 * 3);
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(i * 5);
  ImageSpec spec;
  spec.height = spec.width = 8;
  spec.resize = ImageSpec::Resize::longer_side;
  spec.resize_size = 7;
  spec.round_down = true;
  spec.pad_color = {10, 20, 30};
  Runner runner = cpp_runner();
  const lenslet_image image = image_of(pixels);
  lenslet_image_spec same = sized<lenslet_image_spec>();
  same.resize_size = 7;
  same.round_down = 1;
  std::memcpy(same.pad_color, spec.pad_color.data(), sizeof(same.pad_color));
  for (const bool fit : {false, true})
    for (const bool center : {false, true}) {
      spec.resize = fit ? ImageSpec::Resize::fit : ImageSpec::Resize::longer_side;
      same.resize = fit ? LENSLET_RESIZE_FIT : LENSLET_RESIZE_LONGER_SIDE;
      spec.pad = center ? ImageSpec::Pad::center : ImageSpec::Pad::top_left;
      same.pad = center ? LENSLET_PAD_CENTER : LENSLET_PAD_TOP_LEFT;
      runner.load_image(0, {pixels.data(), 12, 10, 3}, spec);
      const Tensor expected = runner.run_loaded()[0].clone();
      REQUIRE_MESSAGE(lenslet_runner_load_image(c.handle, 0, &image, &same, 0) == LENSLET_OK, lenslet_last_error());
      const lenslet_tensor out = c.output();
      REQUIRE(lenslet_runner_run_loaded(c.handle, &out, 1, nullptr) == LENSLET_OK);
      CHECK(std::memcmp(c.y.data, expected.data(), expected.bytes()) == 0);
    }
  same.struct_size = offsetof(lenslet_image_spec, pad);  // an app of the first version: no padding
  CHECK(lenslet_runner_load_image(c.handle, 0, &image, &same, 0) == LENSLET_INVALID_ARGUMENT);
  CHECK(last_error_says("which cannot be cropped to the input size 8 x 8"));
}

TEST_CASE("c_api/use/plan_as_json") {
  CRunner c;
  char* text = nullptr;
  REQUIRE(lenslet_runner_plan_json(c.handle, &text) == LENSLET_OK);
  CHECK(std::string(text).starts_with(
      R"({"device":"cpu","precision":"fp32","threads":1,"inputs":[{"name":"x","shape":[1,3,8,8]}])"));
  CHECK(lenslet_text_free(text) == LENSLET_OK);
  lenslet_plan_options options = on_one_thread();
  options.batch = 3;
  options.conv_algorithm = "direct";
  CHECK(has(c.model.plan(options), R"("shape":[3,3,8,8])"));
  CHECK(has(c.model.plan(options), R"("algorithm":"direct")"));
  const lenslet_named_shape shape = {sizeof(shape), "x", 4, 0, {2, 3, 8, 8}};
  options = on_one_thread();
  options.shapes = &shape;
  options.shape_count = 1;
  CHECK(has(c.model.plan(options), R"("shape":[2,3,8,8])"));
}

TEST_CASE("c_api/use/layer_algorithms_and_disabled_passes") {
  const CModel model;
  const std::string usual = model.plan(on_one_thread());
  lenslet_plan_options options = on_one_thread();
  lenslet_layer_algorithm layer = {sizeof(layer), "conv", "im2col"};
  options.layer_algorithms = &layer;
  options.layer_algorithm_count = 1;
  options.conv_algorithm = "direct";
  CHECK(has(model.plan(options), R"("algorithm":"im2col")"));
  layer.algorithm = nullptr;  // back to the rule's choice
  CHECK(model.plan(options) == usual);
  layer.algorithm = "depthwise";
  options.flags = LENSLET_PLAN_ALGORITHM_WHERE_ACCEPTED;
  CHECK_FALSE(has(model.plan(options), R"("algorithm":"depthwise","config")"));

  CHECK_FALSE(has(usual, R"("op":"Relu")"));
  const char* passes[] = {"fuse_activation", "fold_pad"};
  options = on_one_thread();
  options.disabled_passes = passes;
  options.disabled_pass_count = 2;
  CHECK(has(model.plan(options), R"("op":"Relu")"));
  const std::vector<float> expected = CRunner().result();
  CRunner apart(options);
  const std::vector<float> result = apart.result();
  for (std::size_t i = 0; i < 4; ++i) CHECK(result[i] == doctest::Approx(expected[i]).epsilon(1e-6));
}

TEST_CASE("c_api/use/calibration") {
  // A float16 value whose name equals that of a Cast inserted by lenslet: "x" is then observed on its way there.
  ModelText text;
  text.nodes = {node("Cast", {"x"}, {"x:float16"}, "narrow",
                     [](pbf_writer& cast) { attribute(cast, "to", 2, [](pbf_writer& to) { to.add_int64(3, f16); }); })};
  text.inputs = {port("x", f32, {4})};
  text.outputs = {port("x:float16", f16, {4})};
  const CModel model(text.bytes());
  Floats x(5);  // the first one is not 16-byte aligned, and is freed before the runner
  lenslet_tensor tensors[] = {tensor_of(some_input(x), {4}), tensor_of(x, {4})};
  for (lenslet_tensor& tensor : tensors) {
    tensor.data = x.data + 1;
    tensor.bytes = 16;
  }
  lenslet_plan_options options = on_one_thread();
  options.calibration = tensors;
  options.calibration_count = 1;
  lenslet_runner* runner = nullptr;
  CHECK(lenslet_runner_create(model.handle, &options, &runner) == LENSLET_OK);
  CHECK(lenslet_runner_free(runner) == LENSLET_OK);
  options.calibration_count = 2;
  CHECK(lenslet_runner_create(model.handle, &options, &runner) == LENSLET_INVALID_ARGUMENT);
  options.calibration_count = 1;
  x.data[2] = -7e4F;
  CHECK(lenslet_runner_create(model.handle, &options, &runner) == LENSLET_UNSUPPORTED);
  CHECK(last_error_says("input 'x' reaches 7e+04 on the calibration inputs, and float16 ends at 65504"));
}

TEST_CASE("c_api/use/input_values") {
  ModelText text;
  text.nodes = {node("Reshape", {"x", "shape"}, {"y"}, "reshape")};
  text.inputs = {port("x", f32, {6}), port("shape", i64, {2})};
  text.outputs = {port("y", f32, {-1, -1})};
  const CModel model(text.bytes());
  std::int64_t dims[] = {2, 3};
  lenslet_tensor shape = sized<lenslet_tensor>();
  shape.data = dims;
  shape.bytes = sizeof(dims);
  shape.dtype = LENSLET_I64;
  shape.rank = 1;
  shape.dims[0] = 2;
  const lenslet_named_tensor value = {sizeof(value), "shape", &shape};
  lenslet_plan_options options = on_one_thread();
  options.input_values = &value;
  options.input_value_count = 1;
  CHECK(has(model.plan(options), R"("outputs":[{"name":"y","shape":[2,3]}])"));
  options.other_shapes = 1;
  const CPlanned planned(model, options);
  lenslet_runner* const runner = planned.handle;
  dims[0] = 3;  // the runner has a copy
  dims[1] = 2;
  Floats x(6);
  const lenslet_tensor in[] = {tensor_of(some_input(x), {6}), shape};
  CHECK(lenslet_runner_run(runner, in, 2, nullptr, 0, nullptr) == LENSLET_INVALID_ARGUMENT);
  CHECK(last_error_says("has another value than the one it was planned for"));
  dims[0] = 2;
  dims[1] = 3;
  CHECK(lenslet_runner_run(runner, in, 2, nullptr, 0, nullptr) == LENSLET_OK);
  lenslet_tensor result = sized<lenslet_tensor>();
  REQUIRE(lenslet_runner_result(runner, 0, &result) == LENSLET_OK);
  CHECK(std::memcmp(result.data, x.data, 6 * sizeof(float)) == 0);
}

struct Seen {
  int events = 0, last_step = -1, ends_after = 1000;
  std::string ops;
  std::vector<float> relu;
  static std::int32_t look(void* context, const lenslet_event* event) {
    Seen& seen = *static_cast<Seen*>(context);
    ++seen.events;
    seen.last_step = event->step;
    seen.ops += std::string(event->op) + " ";
    lenslet_tensor value = sized<lenslet_tensor>();
    CHECK(event->struct_size == sizeof(lenslet_event));
    REQUIRE(event->outputs >= 1);
    REQUIRE(lenslet_event_output(event->values, 0, &value) == LENSLET_OK);
    if (value.rank == 4) {
      const auto* const at = static_cast<const float*>(value.data);
      seen.relu.assign(at, at + value.bytes / sizeof(float));
    }
    for (std::size_t i = 0; i < event->inputs; ++i) CHECK(lenslet_event_input(event->values, i, &value) == LENSLET_OK);
    return event->step >= seen.ends_after ? 1 : 0;
  }
};

TEST_CASE("c_api/use/observer") {
  CRunner c;
  const std::vector<float> expected = c.result();
  Seen seen;
  REQUIRE(lenslet_runner_set_observer(c.handle, Seen::look, &seen) == LENSLET_OK);
  CHECK(c.result() == expected);
  CHECK(seen.events >= 2);
  CHECK(has(seen.ops, "Conv"));
  REQUIRE(seen.relu.size() == 4);  // the pooled values, as [1,4,1,1]
  for (std::size_t i = 0; i < 4; ++i) CHECK(seen.relu[i] == expected[i]);
  seen.ends_after = 0;
  CHECK(c.run() == LENSLET_CANCELLED);
  CHECK(last_error_says("the observer ended the run after step 0"));
  CHECK(seen.last_step == 0);
  REQUIRE(lenslet_runner_set_observer(c.handle, nullptr, nullptr) == LENSLET_OK);
  CHECK(c.result() == expected);
}

TEST_CASE("c_api/use/cancel") {
  CRunner c;
  const std::vector<float> expected = c.result();
  lenslet_run_options options = sized<lenslet_run_options>();
  REQUIRE(lenslet_cancel_create(&options.cancel) == LENSLET_OK);
  CHECK(c.run(&options) == LENSLET_OK);
  struct Stops {
    static std::int32_t after_first(void* cancel, const lenslet_event*) {
      CHECK(lenslet_cancel_request(static_cast<lenslet_cancel*>(cancel)) == LENSLET_OK);
      return 0;
    }
  };
  REQUIRE(lenslet_runner_set_observer(c.handle, Stops::after_first, options.cancel) == LENSLET_OK);
  CHECK(c.run(&options) == LENSLET_CANCELLED);
  CHECK(last_error_says("after 1 of"));
  lenslet_tensor result = sized<lenslet_tensor>();
  CHECK(lenslet_runner_result(c.handle, 0, &result) == LENSLET_INVALID_ARGUMENT);
  REQUIRE(lenslet_runner_set_observer(c.handle, nullptr, nullptr) == LENSLET_OK);
  CHECK(c.run(&options) == LENSLET_CANCELLED);  // permanently
  CHECK(lenslet_cancel_free(options.cancel) == LENSLET_OK);
  CHECK(c.result() == expected);
}

struct Lender {
  int loops = 0, releases = 0;
  std::size_t held = 0;
  static void run(void* context, std::int32_t tasks, void (*task)(void*, std::int32_t), void* task_context) {
    ++static_cast<Lender*>(context)->loops;
    for (std::int32_t i = tasks; i-- > 0;) task(task_context, i);
  }
  static void* allocate(void* context, std::size_t bytes, std::size_t alignment, std::int32_t memory) {
    CHECK(memory == LENSLET_ON_HOST);
    static_cast<Lender*>(context)->held += bytes;
    return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  }
  static void deallocate(void* context, void* data, std::size_t bytes, std::size_t, std::int32_t) {
    static_cast<Lender*>(context)->held -= bytes;
    std::free(data);
  }
  static void release(void* context) { ++static_cast<Lender*>(context)->releases; }
};

TEST_CASE("c_api/use/executor_and_allocator") {
  Lender lender;
  const lenslet_executor executor = {sizeof(executor), &lender, Lender::run, Lender::release};
  const lenslet_allocator allocator = {sizeof(allocator), &lender, Lender::allocate, Lender::deallocate,
                                       Lender::release};
  lenslet_plan_options options = on_one_thread();
  options.threads = 2;
  options.batch = 64;
  options.executor = &executor;
  options.allocator = &allocator;
  {
    const CModel model;
    lenslet_runner* runner = nullptr;
    options.precision = "fp17";
    CHECK(lenslet_runner_create(model.handle, &options, &runner) == LENSLET_INVALID_ARGUMENT);
    CHECK(runner == nullptr);
    CHECK(lender.releases == 0);  // nothing was taken over
    options.precision = nullptr;
    REQUIRE_MESSAGE(lenslet_runner_create(model.handle, &options, &runner) == LENSLET_OK, lenslet_last_error());
    CHECK(lender.held > 0);
    Floats x(64 * input_floats), y(std::size_t{64} * 4);
    const lenslet_tensor in = tensor_of(some_input(x), {64, 3, 8, 8}), out = tensor_of(y, {64, 4});
    REQUIRE_MESSAGE(lenslet_runner_run(runner, &in, 1, &out, 1, nullptr) == LENSLET_OK, lenslet_last_error());
    CHECK(lender.loops > 0);
    lenslet_runner* plain = nullptr;
    options.executor = nullptr;
    options.allocator = nullptr;
    Floats z(std::size_t{64} * 4);
    const lenslet_tensor other = tensor_of(z, {64, 4});
    REQUIRE(lenslet_runner_create(model.handle, &options, &plain) == LENSLET_OK);
    REQUIRE(lenslet_runner_run(plain, &in, 1, &other, 1, nullptr) == LENSLET_OK);
    CHECK(std::memcmp(y.data, z.data, y.count * sizeof(float)) == 0);
    CHECK(lenslet_runner_free(runner) == LENSLET_OK);
    CHECK(lenslet_runner_free(plain) == LENSLET_OK);
    CHECK(lender.releases == 2);
    CHECK(lender.held == 0);
  }
}

TEST_CASE("c_api/use/a_runner_for_each_of_many_threads") {
  const CModel model;
  const auto expected = CRunner().result();
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int round = 0; round < 5; ++round) {
        lenslet_runner* runner = nullptr;
        const lenslet_plan_options options = on_one_thread();
        Floats x(input_floats), y(4);
        const lenslet_tensor in = tensor_of(some_input(x), {1, 3, 8, 8}), out = tensor_of(y, {1, 4});
        bool right = lenslet_runner_create(model.handle, &options, &runner) == LENSLET_OK;
        right = right && lenslet_runner_run(runner, &in, 1, &out, 1, nullptr) == LENSLET_OK;
        right = right && std::memcmp(y.data, expected.data(), 16) == 0;
        right = right && lenslet_runner_free(runner) == LENSLET_OK;
        CHECK(right);
      }
    });
}

}  // namespace
}  // namespace lenslet::test
