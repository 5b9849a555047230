// All of `lenslet classify` on the shared models, compared with stored results.

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lenslet/classifier.h"
#include "photos/default_model.h"
#include "tests/larger_error.h"
#include "tests/shared_data.h"
#include "tests/usable_device.h"

namespace lenslet::tool {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

fs::path card_file(const std::string& model) {
  return fs::path(LENSLET_SOURCE_DIR) / "models" / "cards" / (model + ".card.json");
}

json read_json(const fs::path& file) {
  std::ifstream stream(file);
  return json::parse(stream);
}

/// The model's path: shared/data/models, or the cache for the default model; empty if it is missing.
fs::path model_file(const std::string& model) {
  if (const auto shared = test::shared_data("models/" + model + ".onnx")) return *shared;
  const fs::path cached = photos::cache_folder() / (model + ".onnx");
  std::error_code ignored;
  return fs::exists(cached, ignored) ? cached : fs::path();
}

/// Classifies the pictures in batches, `prepared` ones without resizing; results in order, all classes, best first.
std::vector<std::vector<ClassResult>> classify_all(const std::string& model, const std::string& device,
                                                   const std::vector<fs::path>& files, std::int64_t batch,
                                                   bool prepared = false) {
  PlanOptions plan;
  plan.device = device;
  plan.batch = batch;
  Card card = read_card(card_file(model));
  if (prepared) card.spec.resize = ImageSpec::Resize::none;
  Classifier classifier(Model::load(model_file(model)), card, std::nullopt, plan);
  CHECK(classifier.bound().remark == "");
  std::vector<std::vector<ClassResult>> results;
  for (std::size_t begin = 0; begin < files.size(); begin += static_cast<std::size_t>(batch)) {
    const std::size_t count = std::min(static_cast<std::size_t>(batch), files.size() - begin);
    for (std::size_t i = 0; i < count; ++i)
      classifier.prepare(read_image(files[begin + i]), static_cast<std::int64_t>(i));
    classifier.run();
    for (std::size_t i = 0; i < count; ++i) results.push_back(classifier.top(static_cast<std::int64_t>(i), 1000));
  }
  return results;
}

double prob_of(const std::vector<ClassResult>& all, std::int64_t index) {
  for (const ClassResult& result : all)
    if (result.index == index) return static_cast<double>(result.prob);
  FAIL("class " << index << " is missing");
  return 0;
}

/// Under a sanitizer (tools/test.sh) every fifteenth photo: all take the same path through the network, and every fifth
/// took 360 s of CPU in all networks.
std::size_t step_of_photos() { return std::getenv("LENSLET_TEST_REDUCED") == nullptr ? 1 : 15; }

template <typename T>
std::vector<T> every(std::size_t step, const std::vector<T>& list) {
  std::vector<T> kept;
  for (std::size_t i = 0; i < list.size(); i += step) kept.push_back(list[i]);
  return kept;
}

void check_imagenet(const std::string& model, const std::string& device) {
  LENSLET_REQUIRE_SHARED(data, "expected");
  if (!test::device_is_here(device)) return;
  if (model_file(model).empty()) {
    MESSAGE("skipped: " << model << " is not on this machine");
    return;
  }
  const fs::path root = data.parent_path();
  const json images = read_json(data / (model + ".json"))["images"];
  std::vector<fs::path> prepared, photos;
  std::vector<json> prepared_expected, photo_expected;
  for (const auto& item : images.items()) {  // clang 14 does not capture structured bindings
    const std::string& path = item.key();
    const json& expected = item.value();
    const fs::path crop = root / "images/prepared-224" / (fs::path(path).filename().string() + ".ppm");
    if (path.rfind("images/photos/", 0) == 0) {
      prepared.push_back(crop);
      prepared_expected.push_back(expected);
    }
    photos.push_back(root / path);
    photo_expected.push_back(expected);
  }
  REQUIRE(prepared.size() == 18);
  REQUIRE(photos.size() > 60);
  const std::size_t step = step_of_photos();
  for (std::vector<fs::path>* files : {&prepared, &photos}) *files = every(step, *files);
  for (std::vector<json>* expected : {&prepared_expected, &photo_expected}) *expected = every(step, *expected);

  // With exactly the reference's pixels: 1e-3 on each stored probability.
  double worst = 0;
  const auto crops = classify_all(model, device, prepared, 3, true);
  for (std::size_t i = 0; i < prepared.size(); ++i)
    for (const json& top : prepared_expected[i]["top5"])
      worst = test::larger_error(worst, std::abs(prob_of(crops[i], top["index"]) - top["prob"].get<double>()));
  MESSAGE(model << ": worst probability error on prepared crops " << worst);
  CHECK(worst < 1e-3);

  // With our own decoder and resizer: the same best class wherever the reference calls it robust.
  int robust = 0;
  const auto whole = classify_all(model, device, photos, 4);
  for (std::size_t i = 0; i < photos.size(); ++i) {
    if (!photo_expected[i]["top1_robust"].get<bool>()) continue;
    ++robust;
    CAPTURE(photos[i]);
    CHECK(whole[i].front().index == photo_expected[i]["top5"][0]["index"].get<std::int64_t>());
    CHECK(static_cast<double>(whole[i].front().prob) ==
          doctest::Approx(photo_expected[i]["top5"][0]["prob"].get<double>()).epsilon(0.05));
  }
  CHECK(robust > static_cast<int>(20 / step));
}

void check_logits(const std::string& model, const std::string& device, std::size_t correct) {
  LENSLET_REQUIRE_SHARED(data, "expected");
  if (!test::device_is_here(device)) return;
  const json images = read_json(data / (model + ".json"))["images"];
  std::vector<fs::path> files;
  for (const auto& [path, expected] : images.items()) files.push_back(data.parent_path() / path);
  REQUIRE(files.size() == 30);
  const auto results = classify_all(model, device, files, 7);
  std::size_t right = 0, i = 0;
  for (const auto& item : images.items()) {  // clang 14 does not capture structured bindings
    const std::string& path = item.key();
    const json& expected = item.value();
    CAPTURE(path);
    const auto& all = results[i++];
    CHECK(all.front().index == expected["predicted"].get<std::int64_t>());
    right += all.front().index == expected["ground_truth"].get<std::int64_t>() ? 1 : 0;
    // The card asks for a softmax: the same from the stored logits (5 decimals).
    std::vector<float> scores = expected["logits"].get<std::vector<float>>();
    softmax(scores);
    for (std::size_t c = 0; c < scores.size(); ++c)
      CHECK(std::abs(prob_of(all, static_cast<std::int64_t>(c)) - static_cast<double>(scores[c])) < 1e-4);
  }
  CHECK(right == correct);
}

#define LENSLET_CLASSIFY(model, check, ...)                                               \
  TEST_CASE("classify/models/" model) { check(model, "cpu" __VA_OPT__(, ) __VA_ARGS__); } \
  TEST_CASE("classify/cuda/" model) { check(model, "cuda" __VA_OPT__(, ) __VA_ARGS__); }

LENSLET_CLASSIFY("squeezenet1.1", check_imagenet)
LENSLET_CLASSIFY("resnet50", check_imagenet)
LENSLET_CLASSIFY("mobilenetv2-nhwc", check_imagenet)
LENSLET_CLASSIFY("efficientnet-lite0", check_imagenet)
LENSLET_CLASSIFY("cifar10-cnn4", check_logits, 19)
LENSLET_CLASSIFY("cifar10-resnet20", check_logits, 28)
LENSLET_CLASSIFY("mnist-cntk", check_logits, 30)

// ---- the command ----

struct Outcome {
  int status = -1;
  std::string out, err;
};

std::string quoted(const std::string& text) { return "'" + text + "'"; }

/// On the CPU, so that machines with a GPU give the same.
Outcome lenslet(const std::string& arguments) {
  Outcome outcome;
  const fs::path errors = fs::temp_directory_path() / ("lenslet-stderr-" + std::to_string(getpid()));
  const std::string command =
      "LENSLET_DEVICE=cpu " + quoted(LENSLET_COMMAND) + " " + arguments + " 2>" + quoted(errors.string());
  FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::array<char, 4096> buffer;
  for (std::size_t got; (got = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    outcome.out.append(buffer.data(), got);
  const int status = pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  std::ifstream stream(errors);
  outcome.err.assign(std::istreambuf_iterator<char>(stream), {});
  fs::remove(errors);
  return outcome;
}

std::string squeezenet(const fs::path& model) {
  return "classify --model " + quoted(model.string()) + " --card " + quoted(card_file("squeezenet1.1").string());
}

TEST_CASE("classify/command/json, labels, batch and bad files") {
  LENSLET_REQUIRE_SHARED(model, "models/squeezenet1.1.onnx");
  LENSLET_REQUIRE_SHARED(photo, "images/photos/zebra.jpg");
  LENSLET_REQUIRE_SHARED(bad, "images/bad");
  LENSLET_REQUIRE_SHARED(labels, "labels/imagenet_1000.txt");
  const Outcome outcome =
      lenslet(squeezenet(model) + " --labels " + quoted(labels.string()) + " --json --top 2 --batch 3 " +
              quoted(photo.string()) + " " + quoted(bad.string()) + " missing.jpg " + quoted(photo.string()));
  CHECK(outcome.status == 1);
  const json document = json::parse(outcome.out);
  CHECK(document["model"] == model.string());
  CHECK(document["device"] == "cpu");
  const json& results = document["results"];
  REQUIRE(results.size() == 12);
  for (const std::size_t i : {std::size_t{0}, std::size_t{11}}) {
    CHECK(results[i]["file"] == photo.string());
    REQUIRE(results[i]["top"].size() == 2);
    CHECK(results[i]["top"][0]["index"] == 340);
    CHECK(results[i]["top"][0]["label"] == "zebra");
    CHECK(results[i]["top"][0]["prob"].get<double>() > 0.9);
    for (const char* part : {"decode", "preprocess", "inference"}) CHECK(results[i]["ms"][part].get<double>() > 0);
  }
  // One photo in two slots of a batch: no order of summation depends on the slot.
  CHECK(results[0]["top"][0]["prob"].get<double>() == results[11]["top"][0]["prob"].get<double>());
  for (std::size_t i = 1; i < 11; ++i) {
    CHECK(results[i].contains("error"));
    CHECK(!results[i].contains("top"));
    CHECK(outcome.err.find(results[i]["file"].get<std::string>() + ": ") != std::string::npos);
  }
}

TEST_CASE("classify/command/table, a card by checksum, exit codes") {
  LENSLET_REQUIRE_SHARED(model, "models/squeezenet1.1.onnx");
  LENSLET_REQUIRE_SHARED(photo, "images/photos/zebra.jpg");
  setenv("LENSLET_CACHE", "/nowhere", 1);  // neither a default model nor names for 1000 classes
  const Outcome good = lenslet(squeezenet(model) + " --top 1 " + quoted(photo.string()));
  CHECK(good.status == 0);
  CHECK(good.err == "");
  CHECK(good.out.find(" 340 ") != std::string::npos);
  CHECK(good.out.find("inference") != std::string::npos);

  const Outcome known = lenslet("classify --top 1 --model " + quoted(model.string()) + " " + quoted(photo.string()));
  CHECK(known.status == 0);
  CHECK(known.err.find("the card squeezenet1.1.card.json, by the model's checksum: BGR 224x224") != std::string::npos);
  CHECK(known.out.find(" 340 ") != std::string::npos);

  CHECK(lenslet("classify").status == 2);
  CHECK(lenslet(squeezenet(model) + " --top 0 x.jpg").status == 2);
  CHECK(lenslet(squeezenet(model) + " --conv-algorithm nonsense " + quoted(photo.string())).status != 0);
  CHECK(lenslet("classify --model /nowhere/x.onnx " + quoted(photo.string())).status == 4);
  const Outcome no_default = lenslet("classify " + quoted(photo.string()));
  unsetenv("LENSLET_CACHE");
  CHECK(no_default.status == 4);
  CHECK(no_default.err.find("run tools/quickstart.sh") != std::string::npos);
}

TEST_CASE("classify/command/a card of another model is refused by field") {
  LENSLET_REQUIRE_SHARED(model, "models/squeezenet1.1.onnx");
  LENSLET_REQUIRE_SHARED(photo, "images/photos/zebra.jpg");
  const auto refused = [&](const std::string& card, const std::string& word) {
    const Outcome outcome = lenslet("classify --model " + quoted(model.string()) + " --card " +
                                    quoted(card_file(card).string()) + " " + quoted(photo.string()));
    CAPTURE(outcome.err);
    CHECK(outcome.status == 2);
    CHECK(outcome.err.find(word) != std::string::npos);
  };
  refused("resnet50", "input.name is 'input'");
  refused("mnist-cntk", "input.name is 'Input3'");
}

}  // namespace
}  // namespace lenslet::tool
