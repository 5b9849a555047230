#pragma once
// Photo files in, PNG files out, by stb: what the samples that show pictures share. For one source file of a program.

#include <lenslet/image.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#define STB_IMAGE_IMPLEMENTATION
#define STBI_MAX_DIMENSIONS 16384  // checked before anything is allocated
#include <stb_image.h>
#define STB_IMAGE_WRITE_IMPLEMENTATION
#include <stb_image_write.h>

struct Picture {
  std::int64_t height = 0, width = 0;
  std::vector<std::uint8_t> pixels;  // height x width x 3, RGB
  lenslet::ImageView view() const { return {pixels.data(), height, width, 3}; }
  std::uint8_t* at(std::int64_t y, std::int64_t x) { return &pixels[static_cast<std::size_t>((y * width + x) * 3)]; }
};

inline Picture read_picture(const std::string& file) {
  int width = 0, height = 0, channels = 0;
  const std::unique_ptr<stbi_uc, decltype(&stbi_image_free)> pixels(
      stbi_load(file.c_str(), &width, &height, &channels, 3), stbi_image_free);
  if (!pixels) throw std::runtime_error(file + ": " + stbi_failure_reason());
  Picture picture{height, width, {}};
  picture.pixels.assign(pixels.get(), pixels.get() + 3 * picture.height * picture.width);
  return picture;
}

inline void write_png(const std::string& file, const Picture& picture) {
  const int height = static_cast<int>(picture.height), width = static_cast<int>(picture.width);
  if (stbi_write_png(file.c_str(), width, height, 3, picture.pixels.data(), 3 * width) == 0)
    throw std::runtime_error(file + ": cannot be written");
}

inline std::uint8_t to_byte(double value) { return static_cast<std::uint8_t>(std::clamp(value, 0.0, 255.0) + 0.5); }
