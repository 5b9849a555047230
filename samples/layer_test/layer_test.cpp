// Checks of layers as tests: LAYER_TEST_MODEL=net.onnx layer_test. LAYER_TEST_DEVICE names another device than the CPU.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
#include <lenslet/check.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

std::string variable(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : otherwise;
}

const std::string device = variable("LAYER_TEST_DEVICE", "cpu");

}  // namespace

TEST_CASE("every layer of the network is within its stated error") {
  const auto model = lenslet::Model::load(variable("LAYER_TEST_MODEL", "net.onnx"));
  const auto layers = lenslet::check_layers(model, {.device = device});
  REQUIRE(!layers.empty());
  for (const auto& layer : layers) CHECK_MESSAGE(layer.passed(), layer.str());
}

TEST_CASE("so is it with each convolution algorithm, and none is left out for want of a reference") {
  const auto model = lenslet::Model::load(variable("LAYER_TEST_MODEL", "net.onnx"));
  for (const auto& layer : lenslet::check_layers(model, {.device = device, .algorithm = "all", .seed = 2})) {
    if (layer.kind == lenslet::LayerCheck::Kind::refusal) continue;
    CHECK_MESSAGE(layer.judged(), layer.str());
    CHECK_MESSAGE(layer.passed(), layer.str());
  }
}

TEST_CASE("a single layer, by all kernels that take it") {
  const lenslet::AttributeList attributes = {{"pads", std::vector<std::int64_t>{1, 1, 1, 1}}};
  const lenslet::Tensor x = lenslet::random_tensor(lenslet::DType::f32, {1, 16, 28, 28}, 1);
  const lenslet::Tensor filter = lenslet::random_tensor(lenslet::DType::f32, {32, 16, 3, 3}, 2);
  int kernels = 0;
  for (const auto& kernel : lenslet::check_layer("Conv", attributes, {x, filter}, {.device = device})) {
    MESSAGE(kernel.str());
    CHECK_MESSAGE(kernel.passed(), kernel.str());
    if (kernel.judged()) ++kernels;
  }
  CHECK(kernels > 1);
}
