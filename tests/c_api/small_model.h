#pragma once
// A network as an ONNX file, and an app's C objects for it.

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "lenslet/lenslet.h"
#include "tests/models/onnx_writer.h"

namespace lenslet::test {

/// x[N,3,8,8] -> Conv 3x3 to 4 -> Relu -> GlobalAveragePool -> Flatten -> y[N,4]
inline std::string small_onnx() {
  std::vector<float> weights(std::size_t{4} * 3 * 9);
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(i % 7) * 0.1F - 0.2F;
  ModelText model;
  model.nodes = {node("Conv", {"x", "w"}, {"c"}, "conv"), node("Relu", {"c"}, {"r"}, "relu"),
                 node("GlobalAveragePool", {"r"}, {"p"}, "pool"), node("Flatten", {"p"}, {"y"}, "flat")};
  model.initializers = {raw_tensor<float>("w", f32, {4, 3, 3, 3}, weights)};
  model.inputs = {port("x", f32, {-1, 3, 8, 8})};
  model.outputs = {port("y", f32, {-1, 4})};
  return model.bytes();
}

inline constexpr std::size_t input_floats = std::size_t{3} * 8 * 8;

/// Memory of `count` floats, aligned to 64 bytes.
struct Floats {
  explicit Floats(std::size_t floats) : memory(floats + 16), data(memory.data()), count(floats) {
    while (reinterpret_cast<std::uintptr_t>(data) % 64 != 0) ++data;
  }
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;
  std::vector<float> memory;
  float* data;
  std::size_t count;
};

inline Floats& some_input(Floats& x) {
  for (std::size_t i = 0; i < x.count; ++i) x.data[i] = static_cast<float>(i % 11) * 0.25F - 1;
  return x;
}

inline lenslet_tensor tensor_of(Floats& floats, const std::vector<std::int64_t>& dims) {
  lenslet_tensor tensor{};
  tensor.struct_size = sizeof(tensor);
  tensor.data = floats.data;
  tensor.bytes = floats.count * sizeof(float);
  tensor.dtype = LENSLET_F32;
  tensor.rank = static_cast<std::int32_t>(dims.size());
  for (std::size_t i = 0; i < dims.size(); ++i) tensor.dims[i] = dims[i];
  return tensor;
}

/// A struct of lenslet.h with only its size set.
template <typename T>
T sized() {
  T made{};
  made.struct_size = sizeof(T);
  return made;
}

inline lenslet_plan_options on_one_thread() {
  lenslet_plan_options options = sized<lenslet_plan_options>();
  options.device = "cpu";
  options.threads = 1;
  return options;
}

struct CModel {
  explicit CModel(const std::string& bytes = small_onnx(), const lenslet_load_options* options = nullptr) {
    REQUIRE_MESSAGE(lenslet_model_load_bytes(bytes.data(), bytes.size(), options, &handle) == LENSLET_OK,
                    lenslet_last_error());
  }
  CModel(const CModel&) = delete;
  CModel& operator=(const CModel&) = delete;
  ~CModel() { lenslet_model_free(handle); }

  std::size_t inputs() const {
    std::size_t count = 0;
    CHECK(lenslet_model_count(handle, &count, nullptr) == LENSLET_OK);
    return count;
  }
  /// The plan for these options, as text.
  std::string plan(const lenslet_plan_options& options) const {
    char* text = nullptr;
    REQUIRE_MESSAGE(lenslet_model_plan_json(handle, &options, &text) == LENSLET_OK, lenslet_last_error());
    std::string plan = text;
    CHECK(lenslet_text_free(text) == LENSLET_OK);
    return plan;
  }

  lenslet_model* handle = nullptr;
};

struct CPlanned {
  explicit CPlanned(const CModel& model, const lenslet_plan_options& options = on_one_thread()) {
    REQUIRE_MESSAGE(lenslet_runner_create(model.handle, &options, &handle) == LENSLET_OK, lenslet_last_error());
  }
  CPlanned(const CPlanned&) = delete;
  CPlanned& operator=(const CPlanned&) = delete;
  ~CPlanned() { lenslet_runner_free(handle); }

  lenslet_runner* handle = nullptr;
};

/// A runner for one image, with its input and output.
struct CRunner {
  explicit CRunner(const lenslet_plan_options& options = on_one_thread())
      : runner(model, options), handle(runner.handle) {
    some_input(x);
  }

  lenslet_tensor input() { return tensor_of(x, {1, 3, 8, 8}); }
  lenslet_tensor output() { return tensor_of(y, {1, 4}); }
  lenslet_status run(const lenslet_run_options* run_options = nullptr) {
    const lenslet_tensor in = input(), out = output();
    return lenslet_runner_run(handle, &in, 1, &out, 1, run_options);
  }
  std::vector<float> result() {
    std::memset(y.data, 0xFF, y.count * sizeof(float));
    REQUIRE_MESSAGE(run() == LENSLET_OK, lenslet_last_error());
    return {y.data, y.data + y.count};
  }

  CModel model;
  CPlanned runner;
  lenslet_runner* handle;
  Floats x{input_floats}, y{4};
};

/// An image of 10 x 12 pixels.
inline lenslet_image image_of(const std::vector<std::uint8_t>& pixels) {
  lenslet_image image = sized<lenslet_image>();
  image.pixels = pixels.data();
  image.bytes = pixels.size();
  image.height = 12;
  image.width = 10;
  image.channels = 3;
  return image;
}

/// Whether this thread's last error contains `part`.
inline bool last_error_says(const std::string& part) {
  const std::string said = lenslet_last_error();
  if (said.find(part) == std::string::npos) MESSAGE("the last error is: " << said);
  return said.find(part) != std::string::npos && said.find('\n') == std::string::npos;
}

}  // namespace lenslet::test
