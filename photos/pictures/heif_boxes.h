#pragma once
// Judges a HEIF or AVIF file by its boxes and the headers of its pictures before libheif reads it. libheif before 1.19
// allocates and computes what a file of a few bytes asks for.

#include <cstddef>
#include <cstdint>
#include <span>

#include "photos/pictures/decoders.h"

namespace lenslet::photos {

/// Calls `check_size` for each coded picture and grid; returns the pixels of the largest. BadImage for a damaged file,
/// and for what libheif would decode without bounds: derived pictures of other derived pictures (also "iden" and
/// "iovl"), chains of auxiliary pictures, compressed metadata, items that share their bytes.
std::int64_t check_heif(std::span<const std::byte> file, const CheckSize& check_size);

}  // namespace lenslet::photos
