// int8_amx and bf16_amx: int8_packed and bf16_packed by AMX. A tile instruction multiplies 16 pixels by 16 filters over
// 64 bytes. Tiles of pixels are loaded from x or the band, where the windows of a line are equally far apart.
#include "ops/conv/cpu/bf16_windows.h"
#include "ops/conv/cpu/int8_windows.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#endif

namespace lenslet {
namespace {

#if defined(__x86_64__) && defined(__linux__)

constexpr std::int64_t tile = 16, block_words = 16;
constexpr std::int64_t sum_row_bytes = 2 * tile * 4;

/// Whether CPU and kernel let this process use the tiles and the instruction of bit `product` of CPUID (7, 0).EDX.
/// Linux asks for permission, once a process.
bool has_amx(int product) {
  unsigned a = 0, b = 0, c = 0, d = 0;
  const unsigned wanted = (1U << product) | (1U << 24);
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & wanted) != wanted) return false;
  constexpr long request_permission = 0x1023, tile_data = 18;
  return ::syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

/// The operand of LDTILECFG.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};

#define LENSLET_AMX __attribute__((target("amx-tile,amx-int8,amx-bf16")))

struct Int8Product {
  using Panel = Int8Panel;
  static constexpr bool bf16 = false;
  static constexpr std::int64_t y_bytes = 1;
  static void store(const Panel& panel, const std::int32_t* sums, std::int64_t rows, std::byte* y, const std::byte*,
                    std::int64_t y_pixel) {
    store_int8_rows(panel, sums, rows, reinterpret_cast<std::uint8_t*>(y), y_pixel);
  }
};
struct Bf16Product {
  using Panel = Bf16Panel;
  static constexpr bool bf16 = true;
  static constexpr std::int64_t y_bytes = 2;
  static void store(const Panel& panel, const std::int32_t* sums, std::int64_t rows, std::byte* y,
                    const std::byte* residual, std::int64_t y_pixel) {
    store_bf16_rows(panel, reinterpret_cast<const float*>(sums), rows, y, residual, y_pixel);
  }
};

// The intrinsics are macros that want literal numbers of tiles.
#define LENSLET_MULTIPLY_TILES(sums, pixels, filters) \
  if constexpr (Product::bf16)                        \
    _tile_dpbf16ps(sums, pixels, filters);            \
  else                                                \
    _tile_dpbusd(sums, pixels, filters)

/// The next panel of filters, which comes from L3 or memory, is fetched into L2 meanwhile: some lines with each
/// k-block.
struct Ahead {
  const std::int32_t* next;
  std::int64_t lines;  ///< with a k-block

  Ahead(const std::int32_t* panel, std::int64_t tiles, std::int64_t k_block) : next(panel) {
    const std::int64_t pairs = (tiles + 1) / 2;
    lines = (2 * k_block + pairs - 1) / pairs;
  }
  void prefetch() {
    for (std::int64_t i = 0; i < lines; ++i, next += 16) __builtin_prefetch(next, 0, 2);
  }
};

/// One or two tiles of windows from `first` and `second` by one or two of filters; accumulators are tiles 0 to 3, as
/// [pixels][filters]; 4 and 5 are pixels, 6 and 7 filters.
template <typename Product, bool two_rows, bool two_columns>
LENSLET_AMX void multiply_tiles(const WindowBlock& block, const std::byte* first, const std::byte* second,
                                std::int64_t k_block, const std::int32_t* start, const std::int32_t* panel,
                                Ahead& ahead) {
  constexpr std::int64_t width = two_columns ? 2 * tile : tile;
  _tile_loadd(0, start, sum_row_bytes);
  if constexpr (two_columns) _tile_loadd(1, start + tile, sum_row_bytes);
  if constexpr (two_rows) _tile_loadd(2, start, sum_row_bytes);
  if constexpr (two_rows && two_columns) _tile_loadd(3, start + tile, sum_row_bytes);
  for (std::int64_t r = 0; r < block.run_count; ++r) {
    const std::int64_t begin = block.runs[r] + block.group_offset, end = begin + 4 * block.words;
    for (std::int64_t at = begin; at < end; at += 4 * k_block, panel += k_block * width) {
      ahead.prefetch();
      // All loads first: alternated with products they cost a sixth more.
      _tile_loadd(6, panel, 4 * width);
      _tile_loadd(4, first + at, block.window_stride);
      if constexpr (two_rows) _tile_loadd(5, second + at, block.window_stride);
      if constexpr (two_columns) _tile_loadd(7, panel + tile, 4 * width);
      LENSLET_MULTIPLY_TILES(0, 4, 6);
      if constexpr (two_rows) {
        LENSLET_MULTIPLY_TILES(2, 5, 6);
      }
      if constexpr (two_columns) {
        LENSLET_MULTIPLY_TILES(1, 4, 7);
      }
      if constexpr (two_rows && two_columns) {
        LENSLET_MULTIPLY_TILES(3, 5, 7);
      }
    }
  }
}

/// Stores the accumulators: [2][16 pixels][2][16 filters].
LENSLET_AMX void store_tiles(bool two_rows, bool two_columns, std::int32_t* sums) {
  _tile_stored(0, sums, sum_row_bytes);
  if (two_columns) _tile_stored(1, sums + tile, sum_row_bytes);
  if (!two_rows) return;
  _tile_stored(2, sums + 2 * tile * tile, sum_row_bytes);
  if (two_columns) _tile_stored(3, sums + 2 * tile * tile + tile, sum_row_bytes);
}

/// How a block's windows are cut into equal tiles of a strip; a strip's last tile may begin before the previous one
/// ends. A strip is a line, or all lines of an image with the windows between them, whose sums are dropped, if that
/// gives fewer tiles (7x7 pixels: 4 instead of 7).
struct Strips {
  std::int64_t length, kept, step;  ///< windows of a strip; of each `step` of them the first `kept` are pixels
  std::int64_t of_strip, height, tiles, pixels;

  explicit Strips(const WindowBlock& block)
      : Strips(block.line, block.line, block.line, block.line, block.m / block.line) {
    const std::int64_t joined = (block.lines - 1) * block.line_stride + block.line;
    const Strips images(joined, block.line, block.line_stride, block.lines * block.line,
                        block.m / (block.lines * block.line));
    if (block.line_stride >= block.line && images.tiles < tiles) *this = images;
  }

  std::int64_t strip(std::int64_t i) const { return i / of_strip * pixels; }
  std::int64_t begin(std::int64_t i) const { return std::min(i % of_strip * height, length - height); }

  /// Calls f(row, rows, pixel) for the runs of tile i's rows that are pixels.
  template <typename F>
  void for_each_run(std::int64_t i, const F& f) const {
    // Rows of the previous tile are not stored again: y may be the residual.
    const std::int64_t first = i % of_strip * height;
    for (std::int64_t row = first - begin(i), at = first; row < height;) {
      const std::int64_t column = at % step, rows = std::min(height - row, step - column);
      if (column < kept) f(row, std::min(rows, kept - column), strip(i) + at / step * kept + column);
      row += rows;
      at += rows;
    }
  }

 private:
  Strips(std::int64_t windows, std::int64_t pixels_of_line, std::int64_t line_stride, std::int64_t pixels_of_strip,
         std::int64_t strips)
      : length(windows),
        kept(pixels_of_line),
        step(line_stride),
        of_strip((windows + tile - 1) / tile),
        height((windows + of_strip - 1) / of_strip),
        tiles(strips * of_strip),
        pixels(pixels_of_strip) {}
};

template <typename Product>
LENSLET_AMX void multiply(const WindowBlock& block) {
  alignas(64) std::int32_t sums[2][2 * tile * 2 * tile], starts[tile * 2 * tile];
  const Strips strips(block);
  const std::int64_t tiles = strips.tiles, height = strips.height;
  const auto windows = [&](std::int64_t i) {
    return block.windows[strips.strip(i)] + strips.begin(i) * block.window_stride;
  };
  const std::int64_t k_block = block.words / ((block.words + block_words - 1) / block_words);
  const std::int64_t depth = block.run_count * block.words;
  TileConfig config;
  for (int i = 0; i < 8; ++i) {
    config.rows[i] = static_cast<std::uint8_t>(i < 6 ? height : k_block);
    config.row_bytes[i] = static_cast<std::uint16_t>(i == 4 || i == 5 ? 4 * k_block : 4 * tile);
  }
  asm volatile("" : : "r"(&config) : "memory");  // GCC 12 takes it that LDTILECFG reads eight bytes
  _tile_loadconfig(&config);
  for (std::int64_t k = 0; k < block.k; k += 2 * tile) {
    const typename Product::Panel panel(block, k, 2 * tile);
    const std::int32_t* const filters = block.filters + k * depth;
    const bool two_columns = panel.columns > tile;
    for (std::int64_t row = 0; row < tile; ++row) std::memcpy(starts + row * 2 * tile, panel.start, sizeof panel.start);
    asm volatile("" : : "r"(starts) : "memory");  // nor that tiles are loaded from memory
    std::byte* const y = block.y + k * Product::y_bytes;
    const std::byte* const residual = block.residual == nullptr ? nullptr : block.residual + k * Product::y_bytes;
    // The sums of a pair of tiles are requantized while the next pair is being multiplied: loads do not wait for tiles
    // that were just stored.
    const auto requantize = [&](std::int64_t i) {
      for (std::int64_t row = 0; row < 2 && i + row < tiles; ++row)
        strips.for_each_run(i + row, [&](std::int64_t first, std::int64_t rows, std::int64_t pixel) {
          const std::int64_t at = pixel * block.y_pixel;
          Product::store(panel, sums[i / 2 % 2] + (row * tile + first) * 2 * tile, rows, y + at,
                         residual == nullptr ? nullptr : residual + at, block.y_pixel);
        });
    };
    Ahead ahead(filters + 2 * tile * depth, tiles, k_block);
    for (std::int64_t i = 0; i < tiles; i += 2) {
      const bool two_rows = i + 1 < tiles;
      const std::byte* const first = windows(i);
      const std::byte* const second = two_rows ? windows(i + 1) : nullptr;
      if (two_rows && two_columns)
        multiply_tiles<Product, true, true>(block, first, second, k_block, starts, filters, ahead);
      else if (two_rows)
        multiply_tiles<Product, true, false>(block, first, second, k_block, starts, filters, ahead);
      else if (two_columns)
        multiply_tiles<Product, false, true>(block, first, second, k_block, starts, filters, ahead);
      else
        multiply_tiles<Product, false, false>(block, first, second, k_block, starts, filters, ahead);
      store_tiles(two_rows, two_columns, sums[i / 2 % 2]);
      if (i > 0) requantize(i - 2);
    }
    requantize((tiles - 1) / 2 * 2);
  }
  _tile_release();
}

#else

struct Int8Product;
struct Bf16Product;
constexpr std::int64_t tile = 16, block_words = 16;
bool has_amx(int) { return false; }
template <typename Product>
void multiply(const WindowBlock&) {}

#endif

bool has_amx_int8() {
  static const bool has = has_amx(25);
  return has;
}
bool has_amx_bf16() {
  static const bool has = has_amx(22);
  return has;
}

/// Base is Int8Conv or Bf16Conv, whose packed filters and epilogue for AVX-512 these are: every CPU with AMX has it.
template <typename Base, typename Product>
class Amx : public Base {
 protected:
  virtual bool usable() const = 0;
  virtual WindowKernel vectors() const = 0;
  virtual double speed() const = 0;

 private:
  WindowKernel kernel() const final {
    WindowKernel kernel = vectors();
    kernel.block_words = block_words;
    kernel.tile_pixels = tile;
    kernel.tile_words = block_words;
    kernel.speed = speed();
    kernel.vector_us = 1.9e-3;
    kernel.multiply = multiply<Product>;
    return kernel;
  }

  bool runs() const { return usable() && vectors().lanes == 16; }

  std::optional<std::string> refuse(const ConvProblem& p, const Target& target) const final {
    if (!runs()) return "the CPU has no AMX for its type, or the system does not let us use it";
    return Base::refuse(p, target);
  }

  std::unique_ptr<const BoundKernel> bind_conv(const ConvProblem& p, std::string_view config,
                                               const DeviceProfile& device) const final {
    if (!runs()) throw Error(ErrorKind::unsupported, std::string(this->name()) + ": the CPU has no AMX for its type");
    return Base::bind_conv(p, config, device);
  }
};

class Int8Amx final : public Amx<Int8Conv, Int8Product> {
 public:
  std::string_view name() const override { return "int8_amx"; }

 private:
  bool usable() const override { return has_amx_int8() && vectors().word_k == 4; }
  WindowKernel vectors() const override { return int8_vector_kernel(); }
  double speed() const override { return 0.65 * 32; }
};

class Bf16Amx final : public Amx<Bf16Conv, Bf16Product> {
 public:
  std::string_view name() const override { return "bf16_amx"; }

 private:
  bool usable() const override { return has_amx_bf16(); }
  WindowKernel vectors() const override { return bf16_vector_kernel(); }
  double speed() const override { return 0.65 * 16; }
};

}  // namespace

const Kernel& conv_int8_amx() {
  static const Int8Amx algorithm;
  return algorithm;
}

const Kernel& conv_bf16_amx() {
  static const Bf16Amx algorithm;
  return algorithm;
}

}  // namespace lenslet
