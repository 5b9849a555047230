#pragma once
// libwebp behind one function. Without it (LENSLET_HAVE_WEBP is 0) the build reads no WebP.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lenslet::tool {

/// RGB of height x width pixels, alpha dropped; throws BadImage. The caller has read the sizes out of the header, and
/// compared them with the limits.
std::vector<std::uint8_t> webp_decode(std::span<const std::byte> file, std::int64_t height, std::int64_t width);

}  // namespace lenslet::tool
