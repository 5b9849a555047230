// The same as int8_packed by AMX: a tile instruction multiplies 16 pixels by 16 filters over 64 elements. Tiles of
// pixels are loaded from x or the band, where the windows of a line are equally far apart.
#include "ops/conv/cpu/int8_windows.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#endif

namespace lenslet {
namespace {

#if defined(__x86_64__) && defined(__linux__)

constexpr std::int64_t tile = 16, block_words = 16;
constexpr std::int64_t sum_row_bytes = 2 * tile * 4;

/// Whether CPU and kernel let this process use the tiles. Linux asks for permission, once a process.
bool has_amx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned int8_and_tiles = (1U << 25) | (1U << 24);
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & int8_and_tiles) != int8_and_tiles) return false;
  constexpr long request_permission = 0x1023, tile_data = 18;
  return ::syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

/// The operand of LDTILECFG.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};

#define LENSLET_AMX __attribute__((target("amx-tile,amx-int8")))

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
template <bool two_rows, bool two_columns>
LENSLET_AMX void multiply_tiles(const Int8Block& block, const std::byte* first, const std::byte* second,
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
      _tile_loadd(6, panel, 4 * width);
      _tile_loadd(4, first + at, block.window_stride);
      _tile_dpbusd(0, 4, 6);
      if constexpr (two_rows) {
        _tile_loadd(5, second + at, block.window_stride);
        _tile_dpbusd(2, 5, 6);
      }
      if constexpr (two_columns) {
        _tile_loadd(7, panel + tile, 4 * width);
        _tile_dpbusd(1, 4, 7);
        if constexpr (two_rows) _tile_dpbusd(3, 5, 7);
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

LENSLET_AMX void multiply(const Int8Block& block) {
  alignas(64) std::int32_t sums[2][2 * tile * 2 * tile], starts[tile * 2 * tile];
  // A line is cut into equal tiles; the last may begin before the previous one ends.
  const std::int64_t of_line = (block.line + tile - 1) / tile, height = (block.line + of_line - 1) / of_line;
  const std::int64_t tiles = block.m / block.line * of_line;
  const auto pixel = [&](std::int64_t i) {
    return i / of_line * block.line + std::min(i % of_line * height, block.line - height);
  };
  const std::int64_t k_block = block.words / ((block.words + block_words - 1) / block_words);
  const std::int64_t depth = block.run_count * block.words;
  TileConfig config;
  for (int i = 0; i < 8; ++i) {
    config.rows[i] = static_cast<std::uint8_t>(i < 6 ? height : k_block);
    config.row_bytes[i] = static_cast<std::uint16_t>(i == 4 || i == 5 ? 4 * k_block : 4 * tile);
  }
  _tile_loadconfig(&config);
  for (std::int64_t k = 0; k < block.k; k += 2 * tile) {
    const Int8Panel panel(block, k, 2 * tile);
    const std::int32_t* const filters = block.filters + k * depth;
    const bool two_columns = panel.columns > tile;
    for (std::int64_t row = 0; row < tile; ++row) std::copy_n(panel.start, 2 * tile, starts + row * 2 * tile);
    std::uint8_t* const y = block.y + k;
    // The sums of a pair of tiles are requantized while the next pair is being multiplied: loads do not wait for tiles
    // that were just stored.
    const auto requantize = [&](std::int64_t i) {
      for (std::int64_t row = 0; row < 2 && i + row < tiles; ++row)
        store_int8_rows(panel, sums[i / 2 % 2] + row * 2 * tile * tile, height, y + pixel(i + row) * block.y_pixel,
                        block.y_pixel);
    };
    Ahead ahead(filters + 2 * tile * depth, tiles, k_block);
    for (std::int64_t i = 0; i < tiles; i += 2) {
      const bool two_rows = i + 1 < tiles;
      const std::byte* const first = block.windows[pixel(i)];
      const std::byte* const second = two_rows ? block.windows[pixel(i + 1)] : nullptr;
      if (two_rows && two_columns)
        multiply_tiles<true, true>(block, first, second, k_block, starts, filters, ahead);
      else if (two_rows)
        multiply_tiles<true, false>(block, first, second, k_block, starts, filters, ahead);
      else if (two_columns)
        multiply_tiles<false, true>(block, first, second, k_block, starts, filters, ahead);
      else
        multiply_tiles<false, false>(block, first, second, k_block, starts, filters, ahead);
      store_tiles(two_rows, two_columns, sums[i / 2 % 2]);
      if (i > 0) requantize(i - 2);
    }
    requantize((tiles - 1) / 2 * 2);
  }
  _tile_release();
}

#else

constexpr std::int64_t block_words = 16;
bool has_amx() { return false; }
void multiply(const Int8Block&) {}

#endif

class Int8Amx final : public Int8Conv {
 public:
  std::string_view name() const override { return "int8_amx"; }

 private:
  /// Its packed filters and epilogue are those of AVX-512 with VNNI, which every CPU with AMX has.
  static bool usable() {
    static const bool has = has_amx();
    const Int8Kernel vectors = int8_vector_kernel();
    return has && vectors.lanes == 16 && vectors.word_k == 4;
  }

  Int8Kernel kernel() const override {
    Int8Kernel kernel = int8_vector_kernel();
    kernel.block_words = block_words;
    kernel.tile_pixels = 16;
    kernel.tile_words = block_words;
    kernel.speed = 0.65 * 32;
    kernel.vector_us = 1.9e-3;
    kernel.multiply = multiply;
    return kernel;
  }

  std::optional<std::string> refuse(const ConvProblem& p, const Target& target) const override {
    if (!usable()) return "the CPU has no AMX for int8, or the system does not let us use it";
    return Int8Conv::refuse(p, target);
  }

  std::unique_ptr<const BoundKernel> bind_conv(const ConvProblem& p, std::string_view config,
                                               const DeviceProfile& device) const override {
    if (!usable()) throw Error(ErrorKind::unsupported, "int8_amx: the CPU has no AMX for int8");
    return Int8Conv::bind_conv(p, config, device);
  }
};

}  // namespace

const Kernel& conv_int8_amx() {
  static const Int8Amx algorithm;
  return algorithm;
}

}  // namespace lenslet
