// PhotoOptions::Decode::gpu and GpuJpegDecoder. The shared files are truly encoded ones.
#include "lenslet/gpu_jpeg.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lenslet/error.h"
#include "lenslet/photos.h"
#include "lenslet/picture.h"
#include "lenslet/runner.h"
#include "photos/pictures/decoders.h"
#include "photos/pictures/read_file.h"
#include "runtime/exec/model_impl.h"
#include "tests/exec/small_net.h"
#include "tests/expect_error.h"
#include "tests/shared_data.h"
#include "tests/usable_device.h"

namespace lenslet {
namespace {

bool is_stb() { return picture_decoders().find("stb_image") != std::string_view::npos; }

std::vector<std::byte> bytes_of(const std::filesystem::path& file) {
  const std::string read = photos::read_photo(file);
  const auto bytes = std::as_bytes(std::span(read));
  return {bytes.begin(), bytes.end()};
}

/// Nothing without a GPU or nvJPEG; says so.
std::unique_ptr<GpuJpegDecoder> decoder_here() {
  if (!test::device_is_here("cuda")) return nullptr;
  try {
    return std::make_unique<GpuJpegDecoder>("cuda:0");
  } catch (const Error& error) {
    REQUIRE(error.kind() == ErrorKind::unsupported);
    MESSAGE("skipped: " << error.what());
    return nullptr;
  }
}

Card card_of_17_by_19() {
  return parse_card(R"({"input": {"size": [17, 19]}, "resize": {"mode": "stretch"},
                        "normalize": {"scale": 0.01, "mean": [0.5, 0.6, 0.7]}, "output": {"softmax": true}})",
                    "small.card.json");
}

TEST_CASE("gpu_jpeg/only upright whole baseline files of gray or YCbCr go to a GPU") {
  LENSLET_REQUIRE_SHARED(images, "images");
  if (is_stb()) return;
  const auto size_of = [&](const std::string& name) { return photos::jpeg_for_gpu(bytes_of(images / name)); };
  for (const char* name : {"cat_444.jpg", "cat_422.jpg", "cat_420.jpg", "cat_gray.jpg", "cat_q10.jpg"}) {
    CAPTURE(name);
    const Picture picture = read_image(images / "odd" / name);
    const auto size = size_of(std::string("odd/") + name);
    REQUIRE(size.has_value());
    CHECK(size->height == picture.height);
    CHECK(size->width == picture.width);
  }
  for (const char* name :
       {"odd/cat_progressive.jpg", "odd/cat_cmyk.jpg", "odd/cat_exif_orientation6.jpg", "odd/cat_png_named.jpg",
        "bad/truncated_half.jpg", "bad/header_only.jpg", "bad/empty.jpg", "bad/text.jpg", "odd/cat.bmp"})
    CHECK_MESSAGE(!size_of(name), name);
  const std::vector<std::byte> cat = bytes_of(images / "odd" / "cat_420.jpg");
  for (std::size_t length = 0; length < cat.size(); length += 1 + length / 16)
    CHECK(!photos::jpeg_for_gpu(std::span(cat).first(length)));
}

TEST_CASE("gpu_jpeg/needs a GPU, and says so") {
  const Model model = make_model(test::small_net());
  CHECK_ERROR(PhotoClassifier(model, card_of_17_by_19(), {.devices = {"cpu"}, .decode = PhotoOptions::Decode::gpu}),
              invalid_argument, "photos are decoded on the GPU where a GPU runs them; none does");
  CHECK_ERROR(GpuJpegDecoder("cpu"), invalid_argument, "JPEGs are decoded on CUDA devices, not on cpu");
  CHECK_ERROR(GpuJpegDecoder("tpu"), invalid_argument, "tpu");
  std::vector<std::uint8_t> pixels(3 * 4 * 5);
  Tensor input(DType::f32, {1, 3, 4, 5});
  CHECK_ERROR(to_input({pixels.data(), 4, 5, 3, 0, true}, {.height = 4, .width = 5, .resize_size = 4}, input),
              invalid_argument, "the image lies on a CUDA device, where no CPU reads it");
}

/// The pixels of an image on the device: by a network that computes nothing.
std::vector<float> pixels_of(const ImageView& image) {
  Graph graph;
  graph.name = "pixels";
  const ValueId x = test::add_input(graph, {3, image.height, image.width});
  test::add_output(graph, test::add_node(graph, "Relu", {x}));
  const Model model = make_model(std::move(graph));
  PlanOptions plan;
  plan.device = "cuda";
  Runner runner(model, plan);
  runner.load_image(0, image,
                    {.height = image.height,
                     .width = image.width,
                     .nhwc = false,
                     .resize = ImageSpec::Resize::none,
                     .crop = ImageSpec::Crop::none});
  const std::span<const Tensor> outputs = runner.run_loaded();
  const auto values = outputs[0].values<float>();
  return {values.begin(), values.end()};
}

/// Largest and mean difference from libjpeg-turbo's pixels.
std::pair<double, double> difference(const ImageView& on_gpu, const Picture& picture) {
  const std::vector<float> got = pixels_of(on_gpu);
  double most = 0, sum = 0;
  const std::int64_t area = picture.height * picture.width;
  for (std::int64_t at = 0; at < area; ++at)
    for (std::int64_t c = 0; c < 3; ++c) {
      const std::int64_t from = at * picture.channels + (picture.channels == 1 ? 0 : c);
      const double off = std::abs(got[static_cast<std::size_t>(c * area + at)] -
                                  static_cast<double>(picture.pixels[static_cast<std::size_t>(from)]));
      most = std::max(most, off);
      sum += off;
    }
  return {most, sum / static_cast<double>(3 * area)};
}

TEST_CASE("gpu_jpeg/pixels are near those of libjpeg-turbo") {
  LENSLET_REQUIRE_SHARED(images, "images");
  const auto decoder = decoder_here();
  if (decoder == nullptr || is_stb()) return;
  MESSAGE(decoder->description());
  std::vector<std::filesystem::path> files;
  std::vector<std::vector<std::byte>> encoded;
  std::vector<GpuJpeg> jpegs;
  for (const char* folder : {"odd", "photos", "imagenet-sample"})
    for (const auto& entry : std::filesystem::directory_iterator(images / folder)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::erase_if(files, [&](const std::filesystem::path& file) {
    std::vector<std::byte> bytes = bytes_of(file);
    const auto size = photos::jpeg_for_gpu(bytes);
    if (!size) return true;
    encoded.push_back(std::move(bytes));
    jpegs.push_back({encoded.back(), size->height, size->width});
    return false;
  });
  REQUIRE(jpegs.size() > 40);
  // Several batches: the decoder's memory is used again.
  for (std::size_t first = 0; first < jpegs.size(); first += 7) {
    const auto batch = std::span(jpegs).subspan(first, std::min<std::size_t>(7, jpegs.size() - first));
    const std::vector<ImageView> decoded = decoder->decode(batch);
    REQUIRE(decoded.size() == batch.size());
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const std::string name = files[first + i].filename();
      CAPTURE(name);
      REQUIRE(decoded[i].pixels != nullptr);
      CHECK(decoded[i].on_cuda);
      const auto [most, mean] = difference(decoded[i], read_image(files[first + i]));
      MESSAGE(name << ": " << most << " at most, " << mean << " on average");
      // Without chroma to upsample only the inverse DCT and the colours' rounding differ.
      const bool whole_chroma = name == "cat_444.jpg" || name == "cat_gray.jpg";
      CHECK(most <= (whole_chroma ? 4 : 160));
      CHECK(mean <= (whole_chroma ? 0.5 : 2.5));
    }
  }
}

TEST_CASE("gpu_jpeg/files that nvJPEG refuses, or whose size it reads otherwise, have no pixels") {
  LENSLET_REQUIRE_SHARED(odd, "images/odd");
  const auto decoder = decoder_here();
  if (decoder == nullptr) return;
  const std::vector<std::byte> cat = bytes_of(odd / "cat_420.jpg"), bmp = bytes_of(odd / "cat.bmp"), none;
  const Picture picture = read_image(odd / "cat_420.jpg");
  const GpuJpeg files[] = {{cat, picture.height, picture.width},
                           {cat, picture.height + 1, picture.width},
                           {bmp, picture.height, picture.width},
                           {none, picture.height, picture.width},
                           {cat, picture.height, picture.width}};
  const std::vector<ImageView> decoded = decoder->decode(files);
  REQUIRE(decoded.size() == 5);
  for (const std::size_t i : {1U, 2U, 3U}) CHECK(decoded[i].pixels == nullptr);
  REQUIRE(decoded[0].pixels != nullptr);
  REQUIRE(decoded[4].pixels != nullptr);
  CHECK(pixels_of(decoded[0]) == pixels_of(decoded[4]));
  CHECK(decoder->decode({}).empty());
}

TEST_CASE("gpu_jpeg/a mixed folder gives the results of the CPU, nearly") {
  LENSLET_REQUIRE_SHARED(images, "images");
  if (decoder_here() == nullptr) return;
  const Model model = make_model(test::small_net());
  std::vector<std::string> files;
  for (int i = 0; i < 3; ++i)
    for (const char* folder : {"odd", "bad", "photos"})
      for (const auto& entry : std::filesystem::directory_iterator(images / folder)) files.push_back(entry.path());
  std::map<std::string, PhotoResult> expected;
  PhotoClassifier(model, card_of_17_by_19(), {.devices = {"cuda:0"}}).classify(files, [&](PhotoResult&& result) {
    expected[result.name] = std::move(result);
    return true;
  });
  for (const std::vector<std::string>& devices : {std::vector<std::string>{"cuda:0"}, {"cpu", "cuda:0"}})
    for (const std::int64_t batch : {0, 3}) {
      PhotoClassifier classifier(
          model, card_of_17_by_19(),
          {.devices = devices, .threads = 3, .batch = batch, .decode = PhotoOptions::Decode::gpu});
      CHECK(classifier.gpu_decoder().find("nvJPEG") == 0);
      std::size_t count = 0, on_gpu = 0;
      classifier.classify(files, [&](PhotoResult&& result) {
        CAPTURE(result.name);
        CHECK(result.index == count++);
        const PhotoResult& by_cpu = expected.at(result.name);
        REQUIRE(result.error.has_value() == by_cpu.error.has_value());
        if (result.error) {
          CHECK(std::string(result.error->what()) == by_cpu.error->what());
          return true;
        }
        on_gpu += result.decoded_on_gpu ? 1 : 0;
        if (result.decoded_on_gpu) CHECK((photos::jpeg_for_gpu(bytes_of(result.name)).has_value()));
        std::map<std::int64_t, float> probs;
        for (const ClassResult& best : by_cpu.top) probs[best.index] = best.prob;
        for (const ClassResult& best : result.top)
          CHECK(best.prob == doctest::Approx(probs.at(best.index)).epsilon(result.decoded_on_gpu ? 0.1 : 1e-6));
        return true;
      });
      CHECK(count == files.size());
      if (!is_stb()) CHECK(on_gpu > (devices.size() == 1 ? count / 3 : 0));
    }
}

}  // namespace
}  // namespace lenslet
