#include "tools/scans/read_points.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstring>
#include <string>

#include "lenslet/error.h"
#include "lenslet/tensor_file.h"
#include "photos/pictures/read_file.h"

namespace lenslet::tool {

Tensor read_points(const std::filesystem::path& file, std::int64_t columns) {
  constexpr std::uintmax_t most_bytes = std::uintmax_t{1} << 30;
  const std::string bytes = photos::read_file(file, most_bytes);
  const auto size = static_cast<std::int64_t>(bytes.size()), row = columns * static_cast<std::int64_t>(sizeof(float));
  if (columns < 1 || size % row != 0)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("{} bytes are no whole number of points of {} float32", size, columns), file.string());
  Tensor points(DType::f32, {size / row, columns});
  if (size > 0) std::memcpy(points.data(), bytes.data(), bytes.size());
  return points;
}

void write_points(const std::filesystem::path& file, const Tensor& points) {
  write_file(file, {static_cast<const std::byte*>(points.data()), points.bytes()});
}

}  // namespace lenslet::tool
