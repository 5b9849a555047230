#pragma once
// The error of reading a picture.

#include <optional>

#include "lenslet/error.h"
#include "lenslet/picture.h"
#include "tests/photos/make_png.h"

namespace lenslet::test {

/// Nothing if it can be read.
inline std::optional<Error> refusal(const FileBytes& bytes) {
  try {
    (void)decode_image(bytes, "photo");
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

}  // namespace lenslet::test
