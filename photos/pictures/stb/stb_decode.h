#pragma once
// A wrapper of stb_image for JPEG and PNG.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace lenslet::photos {

struct DecodedPixels {
  std::unique_ptr<std::uint8_t[], void (*)(void*)> pixels{nullptr, nullptr};  ///< empty if refused
  int height = 0, width = 0;
  const char* error = nullptr;  ///< stb's reason
};

/// The pixels, H x W x channels (1 or 3). No single allocation exceeds `max_bytes`, whatever the compressed data
/// expands to. bad_alloc if the system has no more memory.
DecodedPixels stb_decode(std::span<const std::byte> file, int channels, std::size_t max_bytes);

}  // namespace lenslet::photos
