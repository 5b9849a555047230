// Raw outputs of the shared models compared with stored ones (onnxruntime, PyTorch): for every convolution algorithm,
// batches, threads, and without each graph pass; all except the threads on a CUDA device, too.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lenslet/runner.h"
#include "lenslet/tensor_file.h"
#include "oracle/oracle.h"
#include "photos/default_model.h"
#include "photos/dtype_convert.h"
#include "tests/larger_error.h"
#include "tests/shared_data.h"
#include "tests/usable_device.h"
#include "tools/verbs/compare.h"

namespace lenslet::tool {
namespace {

namespace fs = std::filesystem;

struct Expected {
  std::string name;
  Tensor tensor;
  double noise = 0;  ///< max |difference| of two runs of the reference runtime
};

struct Reference {
  fs::path model;
  Tensor input;  ///< one image
  std::vector<Expected> outputs;
  std::optional<Expected> presoftmax;
};

/// reference/NAME/meta.json and its files; nothing, with a message, if they or the model are missing.
std::optional<Reference> find_reference(const std::string& name) {
  const auto meta = test::shared_data("reference/" + name + "/meta.json");
  const fs::path cached = photos::cache_folder() / (name + ".onnx");
  const auto shared = test::shared_data("models/" + name + ".onnx");
  std::error_code ignored;
  if (!meta || (!shared && !fs::exists(cached, ignored))) {
    MESSAGE("skipped: shared/data/reference/" << name << " or its model is not on this machine");
    return std::nullopt;
  }
  const fs::path root = meta->parent_path().parent_path().parent_path();
  std::ifstream stream(*meta);
  const nlohmann::json document = nlohmann::json::parse(stream);
  Reference reference;
  reference.model = shared ? *shared : cached;
  const Model model = Model::load(reference.model);
  reference.input =
      photos::convert_float(read_npy(root / document["input"]["file"].get<std::string>()), model.inputs().at(0).dtype);
  for (const auto& output : document["outputs"]) {
    const fs::path file = root / output["file"].get<std::string>();
    Expected expected{output["tensor"], read_npy(file), output.value("noise", 0.0)};
    if (file.filename() == "presoftmax.npy")
      reference.presoftmax = std::move(expected);
    else
      reference.outputs.push_back(std::move(expected));
  }
  REQUIRE(reference.outputs.size() == model.outputs().size());
  return reference;
}

/// rtol 1e-3 and atol 1e-5 of the rms. If the reference has halves, which onnxruntime rounds after every layer, its own
/// noise replaces atol.
Tolerance tolerance_for(const Expected& expected) {
  Tolerance tolerance;
  if (expected.tensor.dtype() != DType::f16) return tolerance;
  double squares = 0;
  for (const double value : oracle::from_tensor(expected.tensor).values)
    squares += std::pow(value, 2) / static_cast<double>(expected.tensor.elems());
  tolerance.atol = expected.noise / std::sqrt(squares);
  return tolerance;
}

/// Image `slot` of a batch of outputs.
Tensor slot_of(const Tensor& all, const Tensor& one, std::int64_t slot) {
  const auto* bytes = static_cast<const std::byte*>(all.data()) + static_cast<std::size_t>(slot) * one.bytes();
  return Tensor::share(all.dtype(), one.shape(), nullptr, bytes);
}

/// The reference image in the even slots; in the others its values in reverse order: noise with the same distribution.
Tensor batch_of(const Tensor& image, std::int64_t batch) {
  Tensor all(image.dtype(), image.shape().with(0, batch));
  const std::size_t width = dtype_bytes(image.dtype()), elems = static_cast<std::size_t>(image.elems());
  const auto* from = static_cast<const std::byte*>(image.data());
  auto* to = static_cast<std::byte*>(all.data());
  for (std::int64_t slot = 0; slot < batch; ++slot, to += image.bytes())
    for (std::size_t i = 0; i < elems; ++i)
      std::memcpy(to + i * width, from + (slot % 2 == 0 ? i : elems - 1 - i) * width, width);
  return all;
}

PlanOptions options_for(const Model& model, const Reference& reference, const std::string& device, std::int64_t batch,
                        int threads) {
  PlanOptions options;
  options.device = device;
  options.threads = threads;
  options.input_shapes = {{model.inputs()[0].name, reference.input.shape().with(0, batch)}};
  return options;
}

/// Runs a batch and judges every slot with the reference image. Each run loads the model anew, so that packed weights
/// of different plans do not accumulate. Returns how many convolutions ran with options.conv_algorithm.
int check_outputs(const Reference& reference, const std::string& device, std::int64_t batch, int threads,
                  const PlanOptions& more = {}) {
  const Model model = Model::load(reference.model);
  PlanOptions options = options_for(model, reference, device, batch, threads);
  options.conv_algorithm = more.conv_algorithm;
  options.conv_algorithm_where_accepted = true;
  options.disabled_passes = more.disabled_passes;
  CAPTURE(batch);
  CAPTURE(threads);
  CAPTURE(options.conv_algorithm);
  Runner runner(model, options);
  const auto outputs = runner.run(batch_of(reference.input, batch));
  for (const Expected& expected : reference.outputs) {
    CAPTURE(expected.name);
    const auto port = std::find_if(model.outputs().begin(), model.outputs().end(),
                                   [&](const PortInfo& p) { return p.name == expected.name; });
    REQUIRE(port != model.outputs().end());
    const Tensor& all = outputs[static_cast<std::size_t>(port - model.outputs().begin())];
    REQUIRE(all.shape() == expected.tensor.shape().with(0, expected.tensor.shape()[0] * batch));
    for (std::int64_t slot = 0; slot < batch; slot += 2) {
      CAPTURE(slot);
      CHECK(difference(slot_of(all, expected.tensor, slot), expected.tensor, tolerance_for(expected)) == "");
    }
  }
  return static_cast<int>(std::count_if(
      runner.plan().steps.begin(), runner.plan().steps.end(),
      [&](const StepInfo& step) { return step.op == "Conv" && step.algorithm == options.conv_algorithm; }));
}

PlanOptions with_algorithm(const std::string& name) {
  PlanOptions options;
  options.conv_algorithm = name;
  return options;
}

/// The input of the final Softmax: probabilities hide errors of large negative scores.
void check_presoftmax(const Reference& reference, const std::string& device, const std::string& algorithm) {
  if (!reference.presoftmax) return;
  const Model model = Model::load(reference.model);
  PlanOptions options = options_for(model, reference, device, 1, 2);
  options.conv_algorithm = algorithm;
  options.conv_algorithm_where_accepted = true;
  options.keep_all_values = true;  // otherwise Softmax works in place
  Runner runner(model, options);
  int seen = 0;
  // The network computes in float32 and rounds only at its ports.
  Expected expected = *reference.presoftmax;
  const Tolerance tolerance = tolerance_for(expected);
  expected.tensor = photos::convert_float(expected.tensor, DType::f32);
  runner.set_observer([&](const LayerEvent& event) {
    if (event.info->op != "Softmax") return;
    ++seen;
    CAPTURE(algorithm);
    CHECK(difference(event.inputs[0].relabelled(formats::nchw), expected.tensor, tolerance) == "");
  });
  runner.run(reference.input);
  CHECK(seen == 1);
}

/// Under a sanitizer (tools/test.sh) the CPU's sweeps leave out what takes longest: the Release build runs it.
bool is_left_out(const std::string& name, const std::string& device, std::initializer_list<std::string_view> longest) {
  return device == "cpu" && std::getenv("LENSLET_TEST_REDUCED") != nullptr && std::ranges::count(longest, name) > 0;
}

/// Number of convolutions that an algorithm accepts.
int taken_by(const std::string& algorithm, const PlanInfo& plan) {
  return static_cast<int>(std::count_if(plan.steps.begin(), plan.steps.end(), [&](const StepInfo& step) {
    return step.op == "Conv" && std::any_of(step.candidates.begin(), step.candidates.end(), [&](const auto& candidate) {
             return candidate.algorithm == algorithm && candidate.refusal.empty();
           });
  }));
}

void check_algorithms(const std::string& name, const std::string& device) {
  const auto reference = find_reference(name);
  if (!reference || !test::device_is_here(device)) return;
  if (is_left_out(name, device, {"resnet50"})) return;
  // On ResNet-50 the plain and the less suitable algorithms take seconds: once each. Under a sanitizer (tools/test.sh)
  // that holds for all networks: batch_threads covers batches.
  const bool large = name == "resnet50", reduced = std::getenv("LENSLET_TEST_REDUCED") != nullptr;
  const Model model = Model::load(reference->model);
  const PlanInfo plan = model.plan(options_for(model, *reference, device, 1, 2));
  const auto convolutions =
      std::count_if(plan.steps.begin(), plan.steps.end(), [](const StepInfo& step) { return step.op == "Conv"; });
  for (const std::string& algorithm : conv_algorithm_names(device)) {
    if (algorithm.starts_with("gather")) continue;                                   // SparseConv's
    if (algorithm.starts_with("int8_") || algorithm.starts_with("bf16_")) continue;  // of other types
    const bool slow =
        device == "cpu" && (algorithm == "direct" || algorithm == "winograd_f2" || algorithm == "winograd_f6");
    const int used = check_outputs(*reference, device, 1, 2, with_algorithm(algorithm));
    MESSAGE(name << ": " << used << " convolutions ran with " << algorithm);
    CHECK(used == taken_by(algorithm, plan));
    if (algorithm == "direct") CHECK(used == convolutions);  // accepts any
    if ((large && slow) || (reduced && device == "cpu")) continue;
    check_outputs(*reference, device, device == "cpu" ? 5 : 3, 1, with_algorithm(algorithm));
    check_presoftmax(*reference, device, algorithm);
  }
}

void check_batches_and_threads(const std::string& name, const std::string& device, std::vector<std::int64_t> batches) {
  const auto reference = find_reference(name);
  if (!reference || !test::device_is_here(device) || is_left_out(name, device, {"resnet50"})) return;
  const std::vector<int> thread_counts = device == "cpu" ? std::vector<int>{1, 2} : std::vector<int>{1};
  for (const std::int64_t batch : batches)
    for (const int threads : thread_counts) check_outputs(*reference, device, batch, threads);
  check_presoftmax(*reference, device, "");
  // The comparison works: another image's outputs differ.
  Reference wrong = *reference;
  wrong.input = slot_of(batch_of(reference->input, 2), reference->input, 1).clone();
  const Model model = Model::load(wrong.model);
  Runner runner(model, options_for(model, wrong, device, 1, 2));
  CHECK(difference(runner.run(wrong.input)[0], wrong.outputs[0].tensor, tolerance_for(wrong.outputs[0])) != "");
}

void check_passes(const std::string& name, const std::string& device) {
  const auto reference = find_reference(name);
  if (!reference || !test::device_is_here(device)) return;
  if (is_left_out(name, device, {"resnet50", "mobilenetv2-nhwc", "squeezenet1.1-fp16"})) return;
  int optional = 0;
  for (const std::string& pass : pass_names()) {
    PlanOptions options;
    options.disabled_passes = {pass};
    CAPTURE(pass);
    try {
      check_outputs(*reference, device, 1, 2, options);
    } catch (const Error& error) {
      REQUIRE(std::string(error.what()).find("cannot be left out") != std::string::npos);
      continue;
    }
    ++optional;
  }
  CHECK(optional >= 9);
}

// A sum between two steps of a QuantizeLinear may be rounded to either, depending on the order of its terms, and later
// layers follow: inputs of the final Softmax may be three steps apart. The class is the same.
void check_quantized(const std::string& name, const std::string& device) {
  const auto reference = find_reference(name);
  if (!reference || !test::device_is_here(device)) return;
  REQUIRE(reference->presoftmax);
  const auto exact = reference->presoftmax->tensor.values<float>();
  std::vector<float> sorted(exact.begin(), exact.end());
  std::ranges::sort(sorted);
  float step = INFINITY;
  for (std::size_t i = 1; i < sorted.size(); ++i)
    if (const float gap = sorted[i] - sorted[i - 1]; gap > 1e-5F) step = std::min(step, gap);
  CHECK(step < 0.2F);

  const Model model = Model::load(reference->model);
  const auto best = [](std::span<const float> values) { return std::ranges::max_element(values) - values.begin(); };
  for (const std::int64_t batch : {1, 3}) {
    PlanOptions options = options_for(model, *reference, device, batch, 2);
    options.keep_all_values = true;  // otherwise Softmax works in place
    Runner runner(model, options);
    int seen = 0;
    runner.set_observer([&](const LayerEvent& event) {
      if (event.info->op != "Softmax") return;
      ++seen;
      const Tensor& got = event.inputs[0];
      for (std::int64_t slot = 0; slot < batch; slot += 2) {
        const auto scores = got.values<float>().subspan(static_cast<std::size_t>(slot) * exact.size(), exact.size());
        double worst = 0;
        for (std::size_t i = 0; i < exact.size(); ++i)
          worst = test::larger_error(worst, std::abs(scores[i] - exact[i]));
        CHECK(worst <= 3.1 * double{step});
        CHECK(best(scores) == best(exact));
      }
    });
    runner.run(batch_of(reference->input, batch));
    CHECK(seen == 1);
  }
}

#define LENSLET_CLASSIFIER(name)                                                                     \
  TEST_CASE("reference/" name "/algorithms") { check_algorithms(name, "cpu"); }                      \
  TEST_CASE("reference/" name "/batch_threads") { check_batches_and_threads(name, "cpu", {1, 5}); }  \
  TEST_CASE("reference/" name "/passes") { check_passes(name, "cpu"); }                              \
  TEST_CASE("reference/cuda/" name "/algorithms") { check_algorithms(name, "cuda"); }                \
  TEST_CASE("reference/cuda/" name "/batch") { check_batches_and_threads(name, "cuda", {1, 3, 8}); } \
  TEST_CASE("reference/cuda/" name "/passes") { check_passes(name, "cuda"); }

#define LENSLET_OTHER_MODEL(name)                                                  \
  TEST_CASE("reference/" name) { check_batches_and_threads(name, "cpu", {1, 2}); } \
  TEST_CASE("reference/cuda/" name) { check_batches_and_threads(name, "cuda", {1, 3, 8}); }

LENSLET_CLASSIFIER("squeezenet1.1")
LENSLET_CLASSIFIER("squeezenet1.1-fp16")
LENSLET_CLASSIFIER("resnet50")
LENSLET_CLASSIFIER("mobilenetv2-nhwc")
LENSLET_CLASSIFIER("mnist-cntk")
LENSLET_CLASSIFIER("cifar10-cnn4")
LENSLET_CLASSIFIER("cifar10-resnet20")
LENSLET_CLASSIFIER("efficientnet-lite0")

LENSLET_OTHER_MODEL("ultraface-rfb-320")
LENSLET_OTHER_MODEL("blazeface-front-128")
LENSLET_OTHER_MODEL("waifu2x-vgg7")
LENSLET_OTHER_MODEL("super-resolution-x3")
LENSLET_OTHER_MODEL("ppocr-cls-mobilenetv3")

TEST_CASE("reference/mobilenetv2-int8-qdq") { check_quantized("mobilenetv2-int8-qdq", "cpu"); }
TEST_CASE("reference/cuda/mobilenetv2-int8-qdq") { check_quantized("mobilenetv2-int8-qdq", "cuda"); }

}  // namespace
}  // namespace lenslet::tool
