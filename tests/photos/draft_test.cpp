// DecodeOptions::draft and Card::draft. tests/python/drawn_pictures_test.py compares the pixels with Pillow's.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lenslet/classifier.h"
#include "lenslet/error.h"
#include "lenslet/photos.h"
#include "lenslet/picture.h"
#include "runtime/exec/model_impl.h"
#include "tests/exec/small_net.h"
#include "tests/expect_error.h"
#include "tests/photos/make_png.h"
#include "tests/shared_data.h"

namespace lenslet {
namespace {

using Resize = ImageSpec::Resize;

bool is_stb() { return picture_decoders().find("stb_image") != std::string_view::npos; }

ImageSpec stretched(std::int64_t height, std::int64_t width) {
  return {.height = height, .width = width, .resize = Resize::stretch, .crop = ImageSpec::Crop::none};
}

Picture drafted(const std::filesystem::path& file, const ImageSpec& spec) { return read_image(file, {.draft = &spec}); }

/// Mean absolute difference of `reduced` and the means of squares of `whole`, which need no rotation to match.
double difference(const Picture& reduced, const Picture& whole) {
  REQUIRE(reduced.channels == whole.channels);
  double sum = 0;
  std::int64_t count = 0;
  const std::int64_t side = reduced.reduction, channels = whole.channels;
  for (std::int64_t y = 0; y < whole.height / side; ++y)
    for (std::int64_t x = 0; x < whole.width / side; ++x)
      for (std::int64_t c = 0; c < channels; ++c, ++count) {
        double mean = 0;
        for (std::int64_t at = 0; at < side * side; ++at) {
          const std::int64_t from = (y * side + at / side) * whole.width + x * side + at % side;
          mean += whole.pixels[static_cast<std::size_t>(from * channels + c)];
        }
        const auto pixel = static_cast<std::size_t>((y * reduced.width + x) * channels + c);
        sum += std::abs(reduced.pixels[pixel] - mean / static_cast<double>(side * side));
      }
  return sum / static_cast<double>(count);
}

TEST_CASE("draft/no side becomes smaller than the resize needs") {
  LENSLET_REQUIRE_SHARED(odd, "images/odd");
  struct Case {
    ImageSpec spec;
    std::int64_t reduction;
  };
  const Case cases[] = {
      {stretched(200, 300), 1},
      {stretched(101, 100), 1},
      {stretched(100, 151), 1},
      {stretched(100, 150), 2},
      {stretched(51, 40), 2},
      {stretched(50, 75), 4},
      {stretched(50, 76), 2},
      {stretched(26, 37), 4},
      {stretched(25, 37), 8},
      {stretched(25, 38), 4},
      {stretched(1, 1), 8},
      {stretched(400, 10), 1},
      {{.height = 90, .width = 90, .resize_size = 101}, 1},
      {{.height = 90, .width = 90, .resize_size = 100}, 2},
      {{.height = 20, .width = 20, .resize_size = 25}, 8},
      {{.height = 150, .width = 150, .resize = Resize::longer_side, .resize_size = 150, .pad = ImageSpec::Pad::center},
       2},
      {{.height = 151, .width = 151, .resize = Resize::longer_side, .resize_size = 151, .pad = ImageSpec::Pad::center},
       1},
      {{.height = 90, .width = 75, .resize = Resize::fit, .pad = ImageSpec::Pad::top_left}, 4},
      {{.height = 90, .width = 76, .resize = Resize::fit, .pad = ImageSpec::Pad::top_left}, 2},
      {{.height = 20, .width = 20, .resize = Resize::none}, 1},
  };
  for (const char* name : {"cat_444.jpg", "cat_422.jpg", "cat_420.jpg", "cat_progressive.jpg", "cat_cmyk.jpg",
                           "cat_gray.jpg", "cat_q10.jpg"}) {
    CAPTURE(name);
    const Picture whole = read_image(odd / name);
    for (const Case& c : cases) {
      const std::int64_t reduction = is_stb() ? 1 : c.reduction;
      CAPTURE(c.spec.height);
      CAPTURE(c.spec.width);
      const Picture picture = drafted(odd / name, c.spec);
      REQUIRE(picture.reduction == reduction);
      CHECK(picture.height == (200 + reduction - 1) / reduction);
      CHECK(picture.width == (300 + reduction - 1) / reduction);
      if (reduction == 1)
        CHECK(picture.pixels == whole.pixels);
      else
        CHECK(difference(picture, whole) < 6);
      CHECK(resize_and_crop(picture.view(), c.spec).size() ==
            static_cast<std::size_t>(c.spec.height * c.spec.width * 3));
    }
  }
  CHECK(drafted(odd / "cat_rgb8.png", stretched(1, 1)).pixels == read_image(odd / "cat_rgb8.png").pixels);
}

TEST_CASE("draft/odd sides and orientation") {
  LENSLET_REQUIRE_SHARED(odd, "images/odd");
  if (is_stb()) return;
  const Picture tall = drafted(odd / "tall_37x311.jpg", stretched(77, 9));
  CHECK(tall.reduction == 4);
  CHECK(tall.height == 78);
  CHECK(tall.width == 10);
  CHECK(drafted(odd / "tall_37x311.jpg", stretched(78, 9)).reduction == 2);
  CHECK(drafted(odd / "tall_37x311.jpg", stretched(77, 10)).reduction == 2);
  // Stored as 300 x 200, upright 200 x 300.
  for (const auto& [spec, reduction] :
       {std::pair{stretched(25, 37), 8}, {stretched(50, 150), 2}, {stretched(50, 75), 4}}) {
    const Picture turned = drafted(odd / "cat_exif_orientation6.jpg", spec);
    REQUIRE(turned.reduction == reduction);
    CHECK(turned.height == 200 / reduction);
    CHECK(turned.width == (300 + reduction - 1) / reduction);
    if (300 % reduction == 0) CHECK(difference(turned, read_image(odd / "cat_exif_orientation6.jpg")) < 6);
  }
}

TEST_CASE("draft/limits are of the whole photo, memory of its pixels") {
  LENSLET_REQUIRE_SHARED(odd, "images/odd");
  if (is_stb()) return;
  using Size = std::pair<std::int64_t, std::int64_t>;
  Size checked;
  std::int64_t reserved = 0;
  const ImageSpec spec = stretched(50, 75);
  const DecodeOptions options{.check_size =
                                  [&](std::int64_t width, std::int64_t height) {
                                    checked = {width, height};
                                  },
                              .reserve = [&](std::int64_t bytes) { reserved = bytes; },
                              .draft = &spec};
  // Of several scans: 2 bytes for each coefficient, of 38 x 25 blocks and, of two planes of colour, 19 x 13. Turned
  // ones are copied.
  constexpr std::int64_t drafted_bytes = 75 * 50 * 3, coefficients = (38 * 25 + 2 * 19 * 13) * 64 * 2;
  const std::pair<const char*, std::int64_t> cases[] = {{"cat_420.jpg", drafted_bytes},
                                                        {"cat_exif_orientation6.jpg", 2 * drafted_bytes},
                                                        {"cat_progressive.jpg", drafted_bytes + coefficients},
                                                        {"cat.bmp", 300 * 200 * 3}};
  for (const auto& [name, bytes] : cases) {
    (void)read_image(odd / name, options);
    const bool turned = bytes == 2 * drafted_bytes;
    CHECK(checked == (turned ? Size{200, 300} : Size{300, 200}));
    CHECK(reserved == bytes);
  }
  const DecodeOptions refusing{.check_size =
                                   [](std::int64_t width, std::int64_t) {
                                     if (width > 299) throw Error(ErrorKind::limit, "wide");
                                   },
                               .reserve = [](std::int64_t) { FAIL("reserved"); },
                               .draft = &spec};
  CHECK_ERROR(read_image(odd / "cat_420.jpg", refusing), limit, "wide");
  const ImageSpec misfit{.height = 50, .width = 75, .resize = Resize::fit};  // without padding
  CHECK_ERROR(drafted(odd / "tall_37x311.jpg", misfit), invalid_argument,
              "tall_37x311.jpg: an image of 37 x 311 pixels");
}

TEST_CASE("draft/truncated and damaged files are refused") {
  LENSLET_REQUIRE_SHARED(odd, "images/odd");
  const ImageSpec spec = stretched(9, 9);
  const DecodeOptions options{.draft = &spec};
  for (const char* name : {"cat_q10.jpg", "cat_progressive.jpg", "cat_cmyk.jpg", "cat_exif_orientation6.jpg"}) {
    CAPTURE(name);
    std::ifstream file(odd / name, std::ios::binary);
    const std::string whole{std::istreambuf_iterator<char>(file), {}};
    const auto decode = [&](std::size_t size) {
      return decode_image(std::as_bytes(std::span(whole).first(size)), "p", options);
    };
    for (std::size_t size = 0; size < whole.size(); size += 1 + size / 50) CHECK_THROWS_AS(decode(size), Error);
    CHECK_THROWS_AS(decode(whole.size() - 1), Error);
    CHECK_NOTHROW(decode(whole.size()));
  }
}

TEST_CASE("draft/many photos as one") {
  LENSLET_REQUIRE_SHARED(odd, "images/odd");
  const Model model = make_model(test::small_net());
  const auto card = [](bool draft) {
    return parse_card(std::string(R"({"input": {"size": [17, 19]}, "resize": {"mode": "stretch", "draft": )") +
                          (draft ? "true" : "false") +
                          R"(}, "normalize": {"scale": 0.01, "mean": [0.5, 0.6, 0.7]}, "output": {"softmax": true}})",
                      "small.card.json");
  };
  const std::string file = (odd / "cat_420.jpg").string();
  std::vector<std::map<std::int64_t, float>> results;
  for (const bool draft : {false, true}) {
    PlanOptions plan;
    plan.device = "cpu";
    Classifier alone(model, card(draft), std::nullopt, plan);
    alone.prepare(read_image(file, {.draft = alone.card().draft_spec()}), 0);
    alone.run();
    std::map<std::int64_t, float> probs;
    for (const ClassResult& best : alone.top(0, 5)) probs[best.index] = best.prob;
    PhotoClassifier many(model, card(draft), {.devices = {"cpu"}, .threads = 1});
    many.classify(std::vector{file, file}, [&](PhotoResult&& result) {
      CHECK(result.top.size() == 5);
      for (const ClassResult& best : result.top)
        CHECK(best.prob == doctest::Approx(probs.at(best.index)).epsilon(1e-6));
      return true;
    });
    results.push_back(probs);
  }
  CHECK((results[0] == results[1]) == is_stb());
}

}  // namespace
}  // namespace lenslet
