#pragma once
// lenslet_picture as pixels.

#include "lenslet/picture.h"
#include "python/native/python.h"

namespace lenslet::python {

/// Error kinds of read_image; Error(invalid_argument) for pixels whose size contradicts itself.
Picture picture_of(const lenslet_picture* given);

}  // namespace lenslet::python
