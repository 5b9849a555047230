// One elementwise kernel: count floats in, count floats out.

#include <cstdint>

#include "runtime/base/cuda/elementwise.h"
#include "tests/cuda/bench.h"

namespace lenslet::bench {

std::vector<Row> elementwise(const cuda::Session& session) {
  std::vector<Row> rows;
  // x_offset: floats by which the input is moved off its 16-byte boundary.
  const auto add = [&](const char* what, std::int64_t count, std::int64_t x_offset) {
    const auto bytes = static_cast<std::size_t>(count) * sizeof(float);
    rows.push_back(measure(session, what, bytes + 16, bytes, [&](const std::byte* from, std::byte* to) {
      cuda::clip_scale(reinterpret_cast<const float*>(from) + x_offset, reinterpret_cast<float*>(to), count, 0.5F, 0, 6,
                       session.context().stream);
    }));
  };
  for (const int power : {20, 23, 26, 28}) add("clip_scale, aligned", std::int64_t{1} << power, 0);
  add("clip_scale, 3 floats of tail", (std::int64_t{1} << 26) + 3, 0);
  add("clip_scale, x misaligned by 4 bytes", std::int64_t{1} << 26, 1);
  return rows;
}

}  // namespace lenslet::bench
