#pragma once
// A wrapper of libwebp. Without it (LENSLET_HAVE_WEBP is 0) the build cannot read WebP.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lenslet::tool {

/// RGB of height x width pixels without alpha; throws BadImage. The caller has read the sizes from the header and
/// compared them with the limits.
std::vector<std::uint8_t> webp_decode(std::span<const std::byte> file, std::int64_t height, std::int64_t width);

}  // namespace lenslet::tool
