#pragma once
// The error of reading a picture.

#include <optional>

#include "lenslet/error.h"
#include "tests/tools/make_png.h"
#include "tools/pictures/read_image.h"

namespace lenslet::test {

/// Nothing if it can be read.
inline std::optional<Error> refusal(const FileBytes& bytes) {
  try {
    (void)tool::decode_image(bytes, "photo");
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

}  // namespace lenslet::test
