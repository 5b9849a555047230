// libFuzzer target: any bytes as a photo (JPEG, PNG, BMP, PNM, WebP, HEIC, AVIF) give pixels and from them a network's
// input, or an Error. The last byte selects how the pixels are resized, and whether for that a JPEG is drafted.

#include <cstddef>
#include <cstdint>
#include <span>

#include "lenslet/image.h"
#include "lenslet/picture.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace lenslet;

// Larger pictures only take time.
constexpr std::int64_t most_pixels = 1 << 20;

/// Judged by the header: a few bytes may claim 100 million pixels, which take seconds to decode.
void check_size(std::int64_t width, std::int64_t height) {
  check_image_size(width, height);
  if (height * width > most_pixels) throw Error(ErrorKind::limit, "large");
}

void decode_and_normalise(std::span<const std::byte> bytes) {
  const auto choice = static_cast<unsigned>(bytes.empty() ? 0 : std::to_integer<unsigned>(bytes.back()));
  const ImageSpec spec{.height = 8 + choice % 4,
                       .width = 12,
                       .channels = static_cast<ImageSpec::Channels>(choice % 3),
                       .nhwc = choice / 4 % 2 != 0,
                       .resize = static_cast<ImageSpec::Resize>(choice / 8 % 5),
                       .resize_size = 12 + choice % 5,
                       .filter = static_cast<ImageSpec::Filter>(choice / 16 % 3),
                       .antialias = choice / 64 % 2 != 0,
                       .crop = static_cast<ImageSpec::Crop>(choice / 128),
                       .pad = static_cast<ImageSpec::Pad>(choice % 3)};
  const Picture picture =
      decode_image(bytes, "fuzz", {.check_size = check_size, .draft = choice % 2 ? &spec : nullptr});
  const std::int64_t channels = spec.channels == ImageSpec::Channels::gray ? 1 : 3;
  Tensor input(DType::f32,
               spec.nhwc ? Shape{1, spec.height, spec.width, channels} : Shape{1, channels, spec.height, spec.width});
  to_input(picture.view(), spec, input);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  test::expect_result_or_error([bytes] { decode_and_normalise(bytes); });
  return 0;
}
