#pragma once
// lenslet_picture as pixels.

#include <cstddef>

#include "lenslet/card.h"
#include "lenslet/lenslet_photos.h"
#include "lenslet/picture.h"

namespace lenslet::c_api {

/// Encoded ones are drafted where `card`, if given, says so. Error kinds of read_image; Error(invalid_argument) for
/// pixels whose size contradicts itself.
Picture picture_of(const lenslet_picture* given, const Card* card = nullptr);

/// lenslet_card_prepare() of a decoded picture.
void prepare(const Card& card, const Picture& picture, float* input, std::size_t count);

}  // namespace lenslet::c_api
