#pragma once
// Col2Im in numbers, and the launcher.

#include <array>
#include <cstddef>
#include <cstdint>

namespace lenslet {

/// Columns x [planes, block positions, window positions], images y [planes, size...]: each window adds its block of
/// pixels at its position. Three axes; missing ones come first with length 1.
struct Fold {
  struct Axis {
    std::int64_t size = 1, block = 1, windows = 1;
    std::int64_t stride = 1, dilation = 1, pad = 0;  ///< `pad`: zeros before the image
  };
  std::int64_t planes = 1;
  std::array<Axis, 3> axes{};

  std::int64_t blocks() const { return axes[0].block * axes[1].block * axes[2].block; }
  std::int64_t windows() const { return axes[0].windows * axes[1].windows * axes[2].windows; }
  std::int64_t pixels() const { return axes[0].size * axes[1].size * axes[2].size; }
};

namespace cuda {

struct Context;

/// Device addresses. Sums in block order, as on the CPU.
void col2im(const Context& context, const Fold& fold, const float* x, float* y);

}  // namespace cuda
}  // namespace lenslet
