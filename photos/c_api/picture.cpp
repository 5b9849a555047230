#include "photos/c_api/picture.h"

#include <fmt/format.h>

#include <cstddef>
#include <memory>
#include <span>

#include "c_api/handles.h"
#include "c_api/structs.h"
#include "lenslet/c_api.h"
#include "lenslet/error.h"

namespace lenslet::c_api {

namespace {

struct PixelsObject {
  using Handle = lenslet_pixels;
  static constexpr auto handle_name = "lenslet_pixels";
  const Picture picture;
};

Picture pixels_of(const lenslet_picture& given) {
  if (given.height < 1 || given.width < 1 || (given.channels != 1 && given.channels != 3))
    throw Error(ErrorKind::invalid_argument, fmt::format("an image of {} x {} pixels and {} channels: 1 or 3 channels",
                                                         given.width, given.height, given.channels));
  check_image_size(given.width, given.height);
  const auto elems = static_cast<std::size_t>(given.height * given.width * given.channels);
  if (given.size != elems)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("an image of {} bytes where {} are wanted", given.size, elems));
  Picture picture;
  picture.pixels.assign(given.bytes, given.bytes + elems);
  picture.height = given.height;
  picture.width = given.width;
  picture.channels = given.channels;
  return picture;
}

}  // namespace

Picture picture_of(const lenslet_picture* given, const Card* card) {
  const DecodeOptions options{.draft = card != nullptr ? card->draft_spec() : nullptr};
  const lenslet_picture picture = taken(given, "picture");
  if (picture.file != nullptr) return read_image(picture.file, options);
  if (picture.bytes == nullptr && picture.size > 0) check_given(nullptr, "the picture's bytes");
  if (picture.height != 0 || picture.width != 0) return pixels_of(picture);
  return decode_image({reinterpret_cast<const std::byte*>(picture.bytes), picture.size}, "the picture", options);
}

}  // namespace lenslet::c_api

using namespace lenslet;
using namespace lenslet::c_api;

lenslet_status lenslet_picture_decode(const lenslet_picture* picture, lenslet_pixels** pixels, lenslet_image* image) {
  return guarded([&] {
    check_given(pixels, "pixels");
    *pixels = nullptr;
    const auto object = std::make_shared<PixelsObject>(PixelsObject{picture_of(picture)});
    const Picture& of = object->picture;
    lenslet_image view{};
    view.pixels = of.pixels.data();
    view.bytes = of.pixels.size();
    view.height = of.height;
    view.width = of.width;
    view.channels = static_cast<std::int32_t>(of.channels);
    give(image, view, "image");
    *pixels = Handles<PixelsObject>::add(object);
  });
}

lenslet_status lenslet_pixels_free(lenslet_pixels* pixels) {
  return guarded([&] { Handles<PixelsObject>::free(pixels); });
}
