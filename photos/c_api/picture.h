#pragma once
// lenslet_picture as pixels.

#include "lenslet/lenslet_photos.h"
#include "lenslet/picture.h"

namespace lenslet::c_api {

/// Error kinds of read_image; Error(invalid_argument) for pixels whose size contradicts itself.
Picture picture_of(const lenslet_picture* given);

}  // namespace lenslet::c_api
