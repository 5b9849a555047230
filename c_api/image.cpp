// Image loading.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "c_api/objects.h"
#include "c_api/structs.h"
#include "lenslet/c_api.h"

namespace lenslet::c_api {

namespace {

// The enumerator with this number in lenslet.h, where 0 is the default.
template <typename Enum, std::size_t count>
Enum choice(std::int32_t number, const std::array<Enum, count>& choices, const char* name) {
  if (number < 0 || static_cast<std::size_t>(number) >= count)
    throw Error(ErrorKind::invalid_argument, fmt::format("image spec: {} is {}", name, number));
  return choices[static_cast<std::size_t>(number)];
}

ImageSpec image_spec(const lenslet_image_spec& given, const Shape& input) {
  ImageSpec spec;
  spec.nhwc = given.nhwc != 0;
  const int height_axis = spec.nhwc ? 1 : 2;
  const auto planned = [&](std::int64_t wanted, int axis) {
    return wanted == 0 && input.rank() == 4 ? input[axis] : wanted;
  };
  spec.height = planned(given.height, height_axis);
  spec.width = planned(given.width, height_axis + 1);
  if (given.resize_size != 0) spec.resize_size = given.resize_size;
  using Spec = ImageSpec;
  spec.channels =
      choice(given.channels, std::array{Spec::Channels::rgb, Spec::Channels::bgr, Spec::Channels::gray}, "channels");
  spec.resize = choice(given.resize,
                       std::array{Spec::Resize::shorter_side, Spec::Resize::stretch, Spec::Resize::none,
                                  Spec::Resize::longer_side, Spec::Resize::fit},
                       "resize");
  spec.filter =
      choice(given.filter, std::array{Spec::Filter::bilinear, Spec::Filter::nearest, Spec::Filter::bicubic}, "filter");
  spec.crop = choice(given.crop, std::array{Spec::Crop::center, Spec::Crop::none}, "crop");
  spec.pad = choice(given.pad, std::array{Spec::Pad::none, Spec::Pad::center, Spec::Pad::top_left}, "pad");
  std::copy_n(given.pad_color, 3, spec.pad_color.begin());
  spec.round_down = given.round_down != 0;
  if (std::any_of(std::begin(given.reserved), std::end(given.reserved), [](std::uint8_t byte) { return byte != 0; }))
    throw Error(ErrorKind::unsupported, "image spec: a reserved member is not 0");
  spec.antialias = given.no_antialias == 0;
  if (given.scale != 0) spec.scale = given.scale;
  const std::size_t channels = spec.channels == ImageSpec::Channels::gray ? 1 : 3;
  spec.mean.assign(given.mean, given.mean + channels);
  spec.std.assign(given.std, given.std + channels);
  for (double& value : spec.std) value = value == 0 ? 1 : value;
  return spec;
}

ImageView image_view(const lenslet_image& given) {
  check_given(given.pixels, "image: pixels");
  const auto sane = [](std::int64_t side) { return side > 0 && side <= std::numeric_limits<std::int32_t>::max(); };
  if (!sane(given.height) || !sane(given.width) || (given.channels != 1 && given.channels != 3))
    throw Error(ErrorKind::invalid_argument,
                fmt::format("an image of {} x {} x {}", given.height, given.width, given.channels));
  if (given.bytes / static_cast<std::size_t>(given.channels) !=
          static_cast<std::size_t>(given.height) * static_cast<std::size_t>(given.width) ||
      given.bytes % static_cast<std::size_t>(given.channels) != 0)
    throw Error(ErrorKind::invalid_argument, fmt::format("an image of {} x {} x {} in {} bytes", given.height,
                                                         given.width, given.channels, given.bytes));
  return {given.pixels, given.height, given.width, given.channels};
}

}  // namespace

}  // namespace lenslet::c_api

using namespace lenslet;
using namespace lenslet::c_api;

lenslet_status lenslet_runner_load_image(lenslet_runner* runner, size_t input, const lenslet_image* image,
                                         const lenslet_image_spec* spec, int64_t index) {
  return guarded([&] {
    const RunnerInUse object(runner);
    check_given(image, "image");
    const ImageView view = image_view(taken(image, "image"));
    const auto& inputs = object->runner.plan().inputs;
    const Shape shape = input < inputs.size() ? inputs[input].second : Shape();
    const ImageSpec made = image_spec(taken(spec, "image spec"), shape);
    object->results.clear();
    object->runner.load_image(input, view, made, index);
  });
}
