#pragma once
// lenslet_picture as pixels.

#include "python/native/python.h"
#include "tools/pictures/read_image.h"

namespace lenslet::python {

/// Error kinds of tool::read_image; Error(invalid_argument) for pixels whose size contradicts itself.
tool::Picture picture_of(const lenslet_picture* given);

}  // namespace lenslet::python
