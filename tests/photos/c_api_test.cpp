// lenslet_photos.h: pictures, cards and many photos in C.

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "lenslet/card.h"
#include "lenslet/classifier.h"
#include "lenslet/image.h"
#include "lenslet/lenslet_photos.h"
#include "tests/c_api/small_model.h"
#include "tests/models/temp_dir.h"

namespace lenslet::test {
namespace {

/// 10 x 12 pixels, different for each `seed`.
std::string ppm(unsigned seed) {
  std::string picture = "P6 10 12 255\n";
  for (unsigned i = 0; i < 10 * 12 * 3; ++i) picture += static_cast<char>((seed * 7 + i * (3 + seed % 5)) % 251);
  return picture;
}

lenslet_picture encoded(const std::string& bytes) {
  lenslet_picture picture = sized<lenslet_picture>();
  picture.bytes = reinterpret_cast<const std::uint8_t*>(bytes.data());
  picture.size = bytes.size();
  return picture;
}

struct CCard {
  explicit CCard(const CModel& model) {
    const std::string bytes = small_onnx();
    REQUIRE_MESSAGE(lenslet_card_of(model.handle, nullptr, bytes.data(), bytes.size(), &handle) == LENSLET_OK,
                    lenslet_last_error());
  }
  CCard(const CCard&) = delete;
  CCard& operator=(const CCard&) = delete;
  ~CCard() { lenslet_card_free(handle); }

  lenslet_card* handle = nullptr;
};

struct CPhotos {
  explicit CPhotos(lenslet_photo_options options = sized<lenslet_photo_options>()) {
    options.devices = &cpu;
    options.device_count = 1;
    REQUIRE_MESSAGE(lenslet_photos_create(model.handle, card.handle, &options, &handle) == LENSLET_OK,
                    lenslet_last_error());
    REQUIRE(lenslet_photos_capacity(handle, &capacity) == LENSLET_OK);
  }
  CPhotos(const CPhotos&) = delete;
  CPhotos& operator=(const CPhotos&) = delete;
  ~CPhotos() { lenslet_photos_free(handle); }

  bool offer(const std::string& name, const std::string& bytes) {
    lenslet_photo photo = sized<lenslet_photo>();
    photo.name = name.c_str();
    photo.bytes = bytes.data();
    photo.size = bytes.size();
    std::int32_t accepted = -1;
    REQUIRE_MESSAGE(lenslet_photos_offer(handle, &photo, &accepted) == LENSLET_OK, lenslet_last_error());
    return accepted == 1;
  }
  bool take(bool wait = true) {
    result = sized<lenslet_photo_result>();
    std::int32_t taken = -1;
    REQUIRE_MESSAGE(lenslet_photos_take(handle, wait ? 1 : 0, &result, &taken) == LENSLET_OK, lenslet_last_error());
    return taken == 1;
  }

  const char* cpu = "cpu";
  CModel model;
  CCard card{model};
  lenslet_photos* handle = nullptr;
  std::size_t capacity = 0;
  lenslet_photo_result result{};
};

/// The best classes in C++.
std::vector<ClassResult> expected_of(const std::string& picture, std::size_t count) {
  const Model model = Model::load_bytes(bytes_of(small_onnx()));
  PlanOptions plan;
  plan.device = "cpu";
  plan.threads = 1;
  Classifier classifier(model, card_of(model, bytes_of(small_onnx())).card, std::nullopt, plan);
  classifier.prepare(decode_image(bytes_of(picture), "x"), 0);
  classifier.run();
  return classifier.top(0, count);
}

TEST_CASE("photos/c_api/each_photo_once_in_order_with_the_classes_of_cpp") {
  CPhotos photos;
  constexpr unsigned count = 60;
  unsigned next = 0, done = 0;
  while (done < count) {
    while (next < count && photos.offer("photo " + std::to_string(next), next % 7 == 3 ? "broken" : ppm(next))) ++next;
    CHECK(next - done <= photos.capacity);
    REQUIRE(photos.take());
    CHECK(photos.result.index == done);
    CHECK(photos.result.name == "photo " + std::to_string(done));
    if (done % 7 == 3) {
      CHECK(photos.result.status == LENSLET_INVALID_IMAGE);
      CHECK(std::string(photos.result.error).starts_with(photos.result.name));
      CHECK(photos.result.class_count == 0);
      CHECK(std::string(photos.result.device).empty());
    } else {
      CHECK(photos.result.status == LENSLET_OK);
      CHECK(std::string(photos.result.error).empty());
      CHECK(std::string(photos.result.device) == "cpu");
      const std::vector<ClassResult> expected = expected_of(ppm(done), 5);
      REQUIRE(photos.result.class_count == expected.size());
      for (std::size_t i = 0; i < expected.size(); ++i) {
        CHECK(photos.result.classes[i].index == expected[i].index);
        CHECK(photos.result.classes[i].prob == expected[i].prob);
        CHECK(std::string(photos.result.classes[i].label).empty());
      }
    }
    ++done;
  }
  CHECK(!photos.take());
  CHECK(!photos.take(false));
}

TEST_CASE("photos/c_api/options_count") {
  const TempDir folder;
  const std::string labels = (folder.path() / "labels.txt").string();
  std::ofstream(labels) << "a\nb\nc\nd\n";
  std::ofstream(folder.path() / "photo.ppm") << ppm(1);
  const std::string file = (folder.path() / "photo.ppm").string();
  lenslet_photo_options options = sized<lenslet_photo_options>();
  options.labels = labels.c_str();
  options.top = 2;
  options.unordered = 1;
  options.threads = 3;
  options.batch = 2;
  CPhotos photos(options);
  char* json = nullptr;
  REQUIRE(lenslet_photos_describe(photos.handle, &json) == LENSLET_OK);
  CHECK(
      std::string(json) ==
      R"({"devices":[{"device":"cpu","runners":3,"threads":1,"batch":2}],"decoders":3,"gpu_decoder":"","classes":4})");
  lenslet_text_free(json);
  lenslet_photo photo = sized<lenslet_photo>();
  photo.name = file.c_str();
  std::set<std::uint64_t> indices;
  for (int i = 0; i < 5; ++i) {
    std::int32_t accepted = 0;
    REQUIRE(lenslet_photos_offer(photos.handle, &photo, &accepted) == LENSLET_OK);
    CHECK(accepted == 1);
  }
  while (photos.take()) {
    indices.insert(photos.result.index);
    REQUIRE(photos.result.class_count == 2);
    CHECK(photos.result.classes[0].label == std::string(1, static_cast<char>('a' + photos.result.classes[0].index)));
  }
  CHECK(indices == std::set<std::uint64_t>{0, 1, 2, 3, 4});
}

TEST_CASE("photos/c_api/class_offset_counts") {
  const CModel model;
  lenslet_card* card = nullptr;
  REQUIRE(lenslet_card_read("card", R"({"input": {"size": [8, 8]}, "output": {"class_offset": 1}})", &card) ==
          LENSLET_OK);
  lenslet_photos* photos = nullptr;
  REQUIRE_MESSAGE(lenslet_photos_create(model.handle, card, nullptr, &photos) == LENSLET_OK, lenslet_last_error());
  CHECK(lenslet_card_free(card) == LENSLET_OK);
  char* json = nullptr;
  REQUIRE(lenslet_photos_describe(photos, &json) == LENSLET_OK);
  CHECK(std::string(json).ends_with(R"("classes":3})"));
  CHECK(lenslet_text_free(json) == LENSLET_OK);
  CHECK(lenslet_photos_free(photos) == LENSLET_OK);
}

TEST_CASE("photos/c_api/misuse") {
  CPhotos photos;
  lenslet_photos* other = photos.handle;
  lenslet_photo_options options = sized<lenslet_photo_options>();
  const char* const tpu = "tpu";
  options.devices = &tpu;
  options.device_count = 1;
  CHECK(lenslet_photos_create(photos.model.handle, photos.card.handle, &options, &other) == LENSLET_INVALID_ARGUMENT);
  CHECK(other == nullptr);
  CHECK(last_error_says("tpu"));
  const char* const cpu = "cpu";
  options.devices = &cpu;
  options.gpu_decode = 1;
  CHECK(lenslet_photos_create(photos.model.handle, photos.card.handle, &options, &other) == LENSLET_INVALID_ARGUMENT);
  CHECK(last_error_says("photos are decoded on the GPU where a GPU runs them; none does"));
  options.gpu_decode = 0;
  options.device_count = 0;
  lenslet_plan_options plan = on_one_thread();
  const lenslet_executor executor{};
  plan.executor = &executor;
  options.plan = &plan;
  CHECK(lenslet_photos_create(photos.model.handle, photos.card.handle, &options, &other) == LENSLET_UNSUPPORTED);
  CHECK(lenslet_photos_create(photos.model.handle, nullptr, nullptr, &other) == LENSLET_INVALID_ARGUMENT);
  CHECK(last_error_says("lenslet_card is NULL"));
  // Handles of the runtime and of the photos are counted together.
  auto* const a_card = reinterpret_cast<lenslet_card*>(photos.model.handle);
  CHECK(lenslet_photos_create(photos.model.handle, a_card, nullptr, &other) == LENSLET_INVALID_ARGUMENT);
  std::int32_t accepted = -1;
  CHECK(lenslet_photos_offer(photos.handle, nullptr, &accepted) == LENSLET_INVALID_ARGUMENT);
  CHECK(accepted == 0);
  lenslet_photo_result small = sized<lenslet_photo_result>();
  small.struct_size = 8;
  std::int32_t taken = -1;
  REQUIRE(photos.offer("x", ppm(0)));
  CHECK(lenslet_photos_take(photos.handle, 1, &small, &taken) == LENSLET_INVALID_ARGUMENT);
  CHECK(photos.take());  // the result was not lost

  lenslet_photos* freed = nullptr;
  REQUIRE(lenslet_photos_create(photos.model.handle, photos.card.handle, nullptr, &freed) == LENSLET_OK);
  CHECK(lenslet_photos_free(freed) == LENSLET_OK);
  CHECK(lenslet_photos_free(freed) == LENSLET_INVALID_ARGUMENT);
  CHECK(lenslet_photos_free(nullptr) == LENSLET_OK);
  std::size_t capacity = 0;
  CHECK(lenslet_photos_capacity(freed, &capacity) == LENSLET_INVALID_ARGUMENT);
}

TEST_CASE("photos/c_api/results_that_are_not_taken_are_abandoned") {
  CPhotos photos;
  for (unsigned i = 0; photos.offer("x", ppm(i)); ++i) CHECK(i < photos.capacity);
}

TEST_CASE("photos/c_api/a_forked_child_is_refused_and_may_free") {
  CPhotos photos;
  REQUIRE(photos.offer("x", ppm(0)));
  const pid_t child = ::fork();
  if (child == 0) {
    std::size_t capacity = 0;
    const bool refused = lenslet_photos_capacity(photos.handle, &capacity) == LENSLET_INVALID_ARGUMENT;
    ::_exit(refused && lenslet_photos_free(photos.handle) == LENSLET_OK ? 0 : 1);
  }
  int status = -1;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(photos.take());
}

TEST_CASE("photos/c_api/cards_and_pictures") {
  const CModel model;
  const CCard card(model);
  const std::string bytes = ppm(5);
  const lenslet_picture picture = encoded(bytes);
  lenslet_pixels* pixels = nullptr;
  lenslet_image image = sized<lenslet_image>();
  REQUIRE(lenslet_picture_decode(&picture, &pixels, &image) == LENSLET_OK);
  CHECK(image.height == 12);
  CHECK(image.width == 10);
  CHECK(image.channels == 3);
  CHECK(std::memcmp(image.pixels, bytes.data() + bytes.size() - image.bytes, image.bytes) == 0);

  // Of the encoded picture and of its pixels.
  std::vector<float> input(input_floats), same(input_floats);
  CHECK(lenslet_card_prepare(card.handle, &picture, input.data(), input.size()) == LENSLET_OK);
  lenslet_picture decoded = sized<lenslet_picture>();
  decoded.bytes = image.pixels;
  decoded.size = image.bytes;
  decoded.height = 12;
  decoded.width = 10;
  decoded.channels = 3;
  CHECK(lenslet_card_prepare(card.handle, &decoded, same.data(), same.size()) == LENSLET_OK);
  CHECK(input == same);
  CHECK(lenslet_card_prepare(card.handle, &decoded, same.data(), 7) == LENSLET_INVALID_ARGUMENT);
  CHECK(lenslet_pixels_free(pixels) == LENSLET_OK);
  CHECK(lenslet_pixels_free(pixels) == LENSLET_INVALID_ARGUMENT);

  const std::string broken = bytes.substr(0, 40);
  const lenslet_picture half = encoded(broken);
  CHECK(lenslet_picture_decode(&half, &pixels, &image) == LENSLET_INVALID_IMAGE);
  CHECK(pixels == nullptr);

  const float scores[] = {1, 4, 2, 3};
  std::int64_t classes[2];
  float probs[2];
  std::size_t found = 0;
  CHECK(lenslet_card_top(card.handle, scores, 4, 2, classes, probs, &found) == LENSLET_OK);
  CHECK(found == 2);
  CHECK(classes[0] == 1);
  CHECK(classes[1] == 3);
  CHECK(probs[0] > probs[1]);
  CHECK(lenslet_card_top(card.handle, nullptr, 4, 2, classes, probs, &found) == LENSLET_INVALID_ARGUMENT);
  CHECK(last_error_says("scores is NULL"));
  CHECK(lenslet_card_top(card.handle, scores, 4, 2, nullptr, probs, &found) == LENSLET_INVALID_ARGUMENT);
  CHECK(last_error_says("classes is NULL"));
  CHECK(lenslet_card_top(card.handle, scores, 4, 2, classes, nullptr, &found) == LENSLET_INVALID_ARGUMENT);
  CHECK(last_error_says("probs is NULL"));
  CHECK(lenslet_card_top(card.handle, scores, 4, 0, nullptr, nullptr, &found) == LENSLET_OK);

  lenslet_card* read = nullptr;
  CHECK(lenslet_card_read("card", R"({"input": {"name": "other", "size": [8, 8]}})", &read) == LENSLET_OK);
  lenslet_card* bound = nullptr;
  CHECK(lenslet_card_bound(read, model.handle, &bound) == LENSLET_INVALID_ARGUMENT);
  CHECK(last_error_says("other"));
  CHECK(lenslet_card_free(read) == LENSLET_OK);
}

TEST_CASE("photos/c_api/boxes_of_the_input_in_pixels_of_the_photo") {
  lenslet_card* card = nullptr;
  REQUIRE(
      lenslet_card_read(
          "card",
          R"({"input": {"size": [32, 64]}, "resize": {"mode": "fit"}, "pad": {"color": [0, 0, 0], "position": "center"}})",
          &card) == LENSLET_OK);
  // 100 x 100 -> 32 x 32 with 16 columns of padding on both sides.
  const std::vector<float> boxes{16, 0, 48, 32, 0, 8, 24, 16};
  const std::vector<float> expected{0, 0, 100, 100, -50, 25, 25, 50};
  std::vector<float> mapped(8);
  CHECK(lenslet_card_photo_boxes(card, 100, 100, nullptr, boxes.data(), 2, mapped.data()) == LENSLET_OK);
  CHECK(mapped == expected);
  mapped = boxes;  // in place
  CHECK(lenslet_card_photo_boxes(card, 100, 100, nullptr, mapped.data(), 2, mapped.data()) == LENSLET_OK);
  CHECK(mapped == expected);
  const lenslet_rect part{50, 200, 100, 100};
  CHECK(lenslet_card_photo_boxes(card, 150, 300, &part, boxes.data(), 2, mapped.data()) == LENSLET_OK);
  CHECK(mapped == std::vector<float>{200, 50, 300, 150, 150, 75, 225, 100});
  CHECK(lenslet_card_photo_boxes(card, 100, 100, nullptr, nullptr, 0, nullptr) == LENSLET_OK);

  // Each number alone.
  const float inf = std::numeric_limits<float>::infinity(), most = std::numeric_limits<float>::max();
  const std::vector<float> odd{std::nanf(""), -inf, most, -most};
  CHECK(lenslet_card_photo_boxes(card, 100, 100, nullptr, odd.data(), 1, mapped.data()) == LENSLET_OK);
  CHECK(std::isnan(mapped[0]));
  CHECK(mapped[1] == -inf);
  CHECK(mapped[2] == inf);
  CHECK(mapped[3] == -inf);

  mapped = boxes;
  const auto refused = [&](std::int64_t height, std::int64_t width, const lenslet_rect* of, const std::string& why) {
    // Without boxes, too.
    for (const std::size_t count : {std::size_t{2}, std::size_t{0}}) {
      CHECK(lenslet_card_photo_boxes(card, height, width, of, boxes.data(), count, mapped.data()) ==
            LENSLET_INVALID_ARGUMENT);
      CHECK(last_error_says(why));
    }
    CHECK(mapped == boxes);
  };
  for (const std::int64_t side : {std::int64_t{0}, std::int64_t{-1}, INT64_MIN}) {
    refused(side, 100, nullptr, "are not inside a photo of 100 x ");
    refused(100, side, nullptr, "are not inside a photo of ");
    refused(side, side, &part, "are not inside a photo of ");
  }
  refused(INT64_MAX, 100, nullptr, "each side may be 1 to");
  for (const lenslet_rect outside :
       {lenslet_rect{0, 0, 151, 1}, lenslet_rect{150, 0, 1, 1}, lenslet_rect{-1, 0, 2, 2}, lenslet_rect{0, 1, 1, 300},
        lenslet_rect{0, 0, 0, 1}, lenslet_rect{0, 0, 1, -1}, lenslet_rect{0, INT64_MAX, 1, INT64_MAX},
        lenslet_rect{INT64_MIN, 0, INT64_MIN, 1}})
    refused(150, 300, &outside, "are not inside a photo of 300 x 150");
  CHECK(lenslet_card_photo_boxes(card, 9, 9, nullptr, nullptr, 1, mapped.data()) == LENSLET_INVALID_ARGUMENT);
  CHECK(last_error_says("in_input is NULL"));
  CHECK(lenslet_card_photo_boxes(card, 9, 9, nullptr, boxes.data(), 1, nullptr) == LENSLET_INVALID_ARGUMENT);
  CHECK(last_error_says("in_photo is NULL"));
  CHECK(lenslet_card_photo_boxes(nullptr, 9, 9, nullptr, boxes.data(), 1, mapped.data()) == LENSLET_INVALID_ARGUMENT);
  CHECK(last_error_says("lenslet_card is NULL"));
  CHECK(lenslet_card_free(card) == LENSLET_OK);
  CHECK(lenslet_card_photo_boxes(card, 9, 9, nullptr, boxes.data(), 1, mapped.data()) == LENSLET_INVALID_ARGUMENT);

  // A card that photos have to fill.
  REQUIRE(lenslet_card_read("card", R"({"input": {"size": [32, 64]}})", &card) == LENSLET_OK);
  refused(100, 63, nullptr, "63 x 100 after resizing");
  CHECK(lenslet_card_free(card) == LENSLET_OK);
}

/// x[1,3,20,40], which is read, and three rows of x1, y1, x2, y2, score, class.
std::string detector_onnx() {
  ModelText model;
  model.nodes = {node("Relu", {"x"}, {"read"}, "relu"), node("Identity", {"rows"}, {"found"}, "rows")};
  const std::vector<float> rows{5, 6, 25, 16, .9F, 0, 1, 2, 11, 12, .5F, 1, 0, 0, 9, 9, .1F, 7};
  model.initializers = {raw_tensor<float>("rows", f32, {1, 3, 6}, rows)};
  model.inputs = {port("x", f32, {1, 3, 20, 40})};
  model.outputs = {port("found", f32, {1, 3, 6}), port("read", f32, {1, 3, 20, 40})};
  return model.bytes();
}

lenslet_card* boxes_card(const std::string& form) {
  lenslet_card* card = nullptr;
  const std::string json =
      R"({"input": {"size": [20, 40]}, "resize": {"mode": "stretch"}, "output": {"name": "found")" + form + "}}";
  REQUIRE_MESSAGE(lenslet_card_read("card", json.c_str(), &card) == LENSLET_OK, lenslet_last_error());
  return card;
}

TEST_CASE("photos/c_api/detector") {
  const TempDir folder;
  const std::string labels = (folder.path() / "labels.txt").string();
  std::ofstream(labels) << "cat\ndog\n";
  const CModel model(detector_onnx());
  lenslet_card* card = boxes_card(R"(, "boxes": {"form": "end_to_end"})");
  const lenslet_plan_options options = on_one_thread();
  lenslet_detector* detector = nullptr;
  REQUIRE_MESSAGE(lenslet_detector_create(model.handle, card, labels.c_str(), &options, &detector) == LENSLET_OK,
                  lenslet_last_error());
  char* json = nullptr;
  REQUIRE(lenslet_detector_describe(detector, &json) == LENSLET_OK);
  CHECK(std::string(json) == R"({"classes":-1,"device":"cpu"})");
  CHECK(lenslet_text_free(json) == LENSLET_OK);

  const std::vector<std::uint8_t> pixels(std::size_t{40} * 80 * 3, 99);
  lenslet_picture picture = sized<lenslet_picture>();
  picture.bytes = pixels.data();
  picture.size = pixels.size();
  picture.height = 40;
  picture.width = 80;
  picture.channels = 3;
  lenslet_detection found[4];
  std::size_t count = 7;
  REQUIRE_MESSAGE(lenslet_detector_detect(detector, &picture, 0.05, 0.45, -1, found, 4, &count) == LENSLET_OK,
                  lenslet_last_error());
  REQUIRE(count == 3);
  CHECK(found[0].left == 10);
  CHECK(found[0].top == 12);
  CHECK(found[0].right == 50);
  CHECK(found[0].bottom == 32);
  CHECK(found[0].index == 0);
  CHECK(found[0].score == doctest::Approx(.9));
  CHECK(std::string(found[0].label) == "cat");
  CHECK(std::string(found[1].label) == "dog");
  CHECK(found[2].index == 7);  // a class without a label
  CHECK(std::string(found[2].label).empty());
  // As many as the array holds; tiles; nothing.
  CHECK(lenslet_detector_detect(detector, &picture, 0.05, 0.45, -1, found, 1, &count) == LENSLET_OK);
  CHECK(count == 1);
  CHECK(lenslet_detector_detect(detector, &picture, 0.6, 1, 0, found, 4, &count) == LENSLET_OK);
  CHECK(count == 4);
  CHECK(lenslet_detector_detect(detector, &picture, 1, 0.45, -1, nullptr, 0, &count) == LENSLET_OK);
  CHECK(count == 0);

  const auto refused = [&](double threshold, double iou, std::int64_t overlap, const std::string& why) {
    count = 7;
    CHECK(lenslet_detector_detect(detector, &picture, threshold, iou, overlap, found, 4, &count) ==
          LENSLET_INVALID_ARGUMENT);
    CHECK(count == 0);
    CHECK(last_error_says(why));
  };
  refused(std::nan(""), 0.45, -1, "threshold is NaN");
  refused(0, std::nan(""), -1, "iou is nan");
  refused(0, -0.1, -1, "iou is -0.1");
  refused(0, 0.45, 20, "cannot overlap by 20");
  refused(0, 0.45, -2, "overlap");
  CHECK(lenslet_detector_detect(detector, &picture, 0, 0, -1, nullptr, 1, &count) == LENSLET_INVALID_ARGUMENT);
  CHECK(last_error_says("detections is NULL"));
  CHECK(lenslet_detector_detect(detector, &picture, 0, 0, -1, found, 1, nullptr) == LENSLET_INVALID_ARGUMENT);
  CHECK(last_error_says("found is NULL"));
  const std::string broken = "no picture";
  const lenslet_picture bad = encoded(broken);
  CHECK(lenslet_detector_detect(detector, &bad, 0, 0, -1, found, 1, &count) == LENSLET_INVALID_IMAGE);

  lenslet_detector* other = detector;
  CHECK(lenslet_detector_create(model.handle, nullptr, nullptr, &options, &other) == LENSLET_INVALID_ARGUMENT);
  CHECK(other == nullptr);
  lenslet_card* const plain = boxes_card("");
  CHECK(lenslet_detector_create(model.handle, plain, nullptr, &options, &other) == LENSLET_INVALID_ARGUMENT);
  CHECK(last_error_says("the card has no output.boxes"));
  lenslet_card* const yolo = boxes_card(R"(, "boxes": {"form": "yolov5"})");
  CHECK(lenslet_detector_create(model.handle, yolo, labels.c_str(), &options, &other) == LENSLET_INVALID_ARGUMENT);
  CHECK(last_error_says("labels"));  // one class, two labels
  for (lenslet_card* const each : {card, plain, yolo}) CHECK(lenslet_card_free(each) == LENSLET_OK);
  CHECK(lenslet_detector_detect(detector, &picture, 0.6, 0, -1, found, 1, &count) == LENSLET_OK);  // keeps its card
  CHECK(lenslet_detector_free(detector) == LENSLET_OK);
  CHECK(lenslet_detector_free(detector) == LENSLET_INVALID_ARGUMENT);
  CHECK(lenslet_detector_describe(detector, &json) == LENSLET_INVALID_ARGUMENT);
}

TEST_CASE("photos/c_api/tiles") {
  std::size_t count = 7;
  REQUIRE(lenslet_image_tiles(10, 9, 4, 6, 2, nullptr, 0, &count) == LENSLET_OK);
  const std::vector<Rect> expected = image_tiles(10, 9, 4, 6, 2);
  REQUIRE(count == expected.size());
  for (std::size_t room = 0; room <= count + 1; ++room) {
    const lenslet_rect untouched{-1, -2, -3, -4};
    std::vector<lenslet_rect> tiles(count + 2, untouched);
    std::size_t found = 0;
    CHECK(lenslet_image_tiles(10, 9, 4, 6, 2, tiles.data(), room, &found) == LENSLET_OK);
    CHECK(found == count);
    for (std::size_t i = 0; i < tiles.size(); ++i) {
      const Rect wanted = i < std::min(room, count) ? expected[i] : Rect{-1, -2, -3, -4};
      CHECK(Rect{tiles[i].top, tiles[i].left, tiles[i].height, tiles[i].width} == wanted);
    }
  }

  const auto refused = [&](lenslet_status status, std::int64_t height, std::int64_t width, std::int64_t tile_height,
                           std::int64_t tile_width, std::int64_t overlap) {
    count = 7;
    CHECK(lenslet_image_tiles(height, width, tile_height, tile_width, overlap, nullptr, 0, &count) == status);
    CHECK(count == 0);
  };
  for (const std::int64_t bad : {std::int64_t{0}, std::int64_t{-1}, INT64_MIN}) {
    refused(LENSLET_INVALID_ARGUMENT, bad, 9, 4, 6, 2);
    refused(LENSLET_INVALID_ARGUMENT, 10, bad, 4, 6, 2);
    refused(LENSLET_INVALID_ARGUMENT, 10, 9, bad, 6, 2);
    refused(LENSLET_INVALID_ARGUMENT, 10, 9, 4, bad, 2);
  }
  for (const std::int64_t bad : {std::int64_t{4}, std::int64_t{-1}, INT64_MIN, INT64_MAX})
    refused(LENSLET_INVALID_ARGUMENT, 10, 9, 4, 6, bad);
  refused(LENSLET_LIMIT, INT64_MAX, INT64_MAX, 1, 1, 0);
  refused(LENSLET_LIMIT, 1001, 1000, 1, 1, 0);
  CHECK(lenslet_image_tiles(INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX - 1, nullptr, 0, &count) ==
        LENSLET_OK);
  CHECK(count == 1);
  CHECK(lenslet_image_tiles(10, 9, 4, 6, 2, nullptr, 1, &count) == LENSLET_INVALID_ARGUMENT);
  CHECK(last_error_says("tiles is NULL"));
  CHECK(lenslet_image_tiles(10, 9, 4, 6, 2, nullptr, 0, nullptr) == LENSLET_INVALID_ARGUMENT);
  CHECK(last_error_says("count is NULL"));
}

}  // namespace
}  // namespace lenslet::test
