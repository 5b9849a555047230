#include "python/native/picture.h"

#include <fmt/format.h>

#include <cstddef>
#include <span>

#include "c_api/structs.h"
#include "lenslet/error.h"

namespace lenslet::python {

namespace {

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

Picture picture_of(const lenslet_picture* given) {
  const lenslet_picture picture = c_api::taken(given, "picture");
  if (picture.file != nullptr) return read_image(picture.file);
  if (picture.bytes == nullptr && picture.size > 0) c_api::check_given(nullptr, "the picture's bytes");
  if (picture.height != 0 || picture.width != 0) return pixels_of(picture);
  return decode_image({reinterpret_cast<const std::byte*>(picture.bytes), picture.size}, "the picture");
}

}  // namespace lenslet::python
