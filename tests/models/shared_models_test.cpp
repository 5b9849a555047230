// The acceptance models: damaged ones are refused with a message, the ONNX project's "light" models compute correctly.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "lenslet/runner.h"
#include "lenslet/tensor_file.h"
#include "tests/expect_error.h"
#include "tests/shared_data.h"
#include "tests/usable_device.h"

using namespace lenslet;

TEST_CASE("shared/bad_models_are_refused") {
  LENSLET_REQUIRE_SHARED(folder, "bad-models");
  std::ifstream index(folder / "INDEX.tsv");
  std::string line;
  std::getline(index, line);
  int count = 0;
  while (std::getline(index, line)) {
    std::istringstream fields(line);
    std::string file, kind, what;
    std::getline(fields, file, '\t');
    std::getline(fields, kind, '\t');
    std::getline(fields, what, '\t');
    CAPTURE(file);
    CAPTURE(what);
    const Error error = test::error_of([&] { Model::load(folder / file); });
    CAPTURE(std::string(error.what()));
    CHECK(test::contains(error.what(), file));
    CHECK(!error.message().empty());
    CHECK((error.kind() == ErrorKind::invalid_model || error.kind() == ErrorKind::unsupported ||
           error.kind() == ErrorKind::limit));
    ++count;
  }
  CHECK(count == 20);
}

TEST_CASE("shared/bad_models_say_where") {
  LENSLET_REQUIRE_SHARED(folder, "bad-models");
  const auto message = [&](const std::string& file) {
    return std::string(test::error_of([&] { Model::load(folder / file); }).what());
  };
  CHECK(test::contains(message("huge_weight_dim.onnx"), "initializer"));
  CHECK(test::contains(message("raw_data_too_long.onnx"), "raw_data has 440"));
  CHECK(test::contains(message("cycle.onnx"), "cycle"));
  CHECK(test::contains(message("missing_weight.onnx"), "which nothing defines"));
  CHECK(test::contains(message("external_data_path_traversal.onnx"), ".."));
  CHECK(test::contains(message("string_weights.onnx"), "string"));
  CHECK(test::contains(message("git_lfs_pointer.onnx"), "Git LFS"));
  CHECK(test::contains(message("unknown_domain.onnx"), "node"));
  CHECK(test::contains(message("conv_zero_stride.onnx"), "stride"));
}

// The ONNX project's architecture files: constant weights, input i/n, one output file each.
void check_onnx_light(const std::string& device) {
  LENSLET_REQUIRE_SHARED(folder, "onnx-light");
  if (!test::device_is_here(device)) return;
  PlanOptions options;
  options.device = device;
  for (const std::string name : {"bvlc_alexnet", "inception_v1", "resnet50", "squeezenet", "vgg19"}) {
    CAPTURE(name);
    const Model model = Model::load(folder / ("light_" + name + ".onnx"));
    REQUIRE(model.inputs().size() == 1);
    const Shape shape{std::span<const std::int64_t>(model.inputs()[0].dims)};
    Tensor input(DType::f32, shape);
    const auto values = input.values<float>();
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(i) / static_cast<float>(values.size());
    const Tensor expected = read_tensor_pb(folder / ("light_" + name + "_output_0.pb"));
    Runner runner(model, options);
    const Tensor& output = runner.run(input).front();
    REQUIRE(output.shape() == expected.shape());
    double worst = 0, square = 0;
    for (std::int64_t i = 0; i < expected.elems(); ++i) {
      const auto at = static_cast<std::size_t>(i);
      const double want = static_cast<double>(expected.values<float>()[at]);
      square += want * want;
      const double error = std::fabs(static_cast<double>(output.values<float>()[at]) - want);
      worst = std::isfinite(error) ? std::max(worst, error - 1e-3 * std::fabs(want)) : HUGE_VAL;
    }
    CHECK(worst <= 1e-5 * std::sqrt(square / static_cast<double>(expected.elems())));
  }
}

TEST_CASE("shared/onnx_light") { check_onnx_light("cpu"); }
TEST_CASE("shared/cuda/onnx_light") { check_onnx_light("cuda"); }
