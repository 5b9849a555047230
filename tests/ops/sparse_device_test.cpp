// Functions of sparse kernels that also run on the host, and the messages of their faults.

#include <doctest/doctest.h>

#include <bit>
#include <cstring>
#include <random>
#include <vector>

#include "ops/sparse/bound_checking.h"
#include "ops/sparse/cuda/cells.h"
#include "ops/sparse/cuda/device_grid.h"

namespace lenslet::test {

TEST_CASE("sparse/device/cells_and_sites") {
  std::mt19937_64 random(1);
  for (const SparseGrid& grid : {SparseGrid{.dims = 3, .images = 3, .size = {5, 7, 11}},
                                 SparseGrid{.dims = 2, .images = 1 << 20, .size = {1, 3, 1}},
                                 SparseGrid{.dims = 3, .images = 2, .size = {1 << 20, 1 << 20, 1 << 20}},
                                 SparseGrid{.dims = 3, .images = 1 << 30, .size = {1, 1 << 30, 3}}}) {
    const cuda::DeviceGrid device(grid);
    const SiteKeys keys(grid);
    for (int i = 0; i < 1000; ++i) {
      const auto cell = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(grid.cells()));
      const cuda::Site site = device.site(cell);
      std::int32_t row[4];
      put_cell(row, {.dims = 3, .images = grid.images, .size = grid.size}, 0, cell);
      CHECK((site.image == row[0] && site.z == row[1] && site.y == row[2] && site.x == row[3]));
      CHECK(device.key(site) == cell);
      CHECK(keys(site.image, site.z, site.y, site.x) == cell);
    }
    const auto [z, y, x] = grid.size;
    for (const cuda::Site& outside :
         {cuda::Site{-1, 0, 0, 0}, cuda::Site{static_cast<std::int32_t>(grid.images), 0, 0, 0},
          cuda::Site{0, static_cast<std::int32_t>(z), 0, 0}, cuda::Site{0, 0, static_cast<std::int32_t>(y), 0},
          cuda::Site{0, 0, 0, static_cast<std::int32_t>(x)}, cuda::Site{0, 0, 0, -1},
          cuda::Site{INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX}})
      CHECK(device.key(outside) == cuda::no_key);
  }
}

TEST_CASE("sparse/device/taps_of_an_axis") {
  for (int stride = 1; stride < 4; ++stride)
    for (int dilation = 1; dilation < 4; ++dilation)
      for (int pad = 0; pad < 4; ++pad)
        for (int in = 0; in < 9; ++in)
          for (int tap = 0; tap < 5; ++tap) {
            const cuda::DeviceAxis axis{.taps = 5, .stride = stride, .dilation = dilation, .pad = pad, .out_size = 7};
            int regular = -1, transposed = -1;
            for (int out = 0; out < axis.out_size; ++out) {
              if (out * stride + tap * dilation - pad == in) regular = out;
              if (in * stride + tap * dilation - pad == out) transposed = out;
            }
            CHECK(axis.meets<false>(in, tap) == regular);
            CHECK(axis.meets<true>(in, tap) == transposed);
          }
  // The largest values that occur.
  constexpr std::int32_t most = 1 << 30, step = 1 << 16;
  const cuda::DeviceAxis axis{.taps = 5, .stride = 1, .dilation = step, .pad = step, .out_size = most};
  CHECK(axis.meets<false>(most - 1, 1) == most - 1);
  CHECK(axis.meets<false>(most - 1, 0) == -1);
  CHECK(axis.meets<true>(most - 1, 1) == most - 1);
  CHECK(axis.meets<true>(most - 1, 4) == -1);
}

TEST_CASE("sparse/device/numbers_of_cells") {
  std::mt19937_64 random(2);
  constexpr std::int64_t count = 200'000;
  cuda::Parts size;
  const cuda::Cells none(count, size);
  std::vector<std::byte> memory(size.bytes());
  cuda::Parts parts(memory.data());
  const cuda::Cells cells(count, parts);
  CHECK(none.bits == nullptr);
  CHECK(cells.words == 3125);
  CHECK(cells.chunk_count == 4);
  std::uint32_t all = 0, in_chunk = 0;
  for (std::int64_t word = 0; word < cells.words; ++word) {
    if (word % cuda::Cells::words_of_chunk == 0) {
      cells.chunks[word / cuda::Cells::words_of_chunk] = all;
      in_chunk = 0;
    }
    cells.bits[word] = random() & random();
    cells.before[word] = in_chunk;
    in_chunk += static_cast<std::uint32_t>(std::popcount(cells.bits[word]));
    all += static_cast<std::uint32_t>(std::popcount(cells.bits[word]));
  }
  std::uint32_t number = 0;
  for (std::int64_t cell = 0; cell < count; ++cell) {
    REQUIRE(cells.number(cell) == number);
    number += static_cast<std::uint32_t>(cells.bits[cell / 64] >> cell % 64 & 1);
  }
}

TEST_CASE("sparse/device/faults_are_told_with_numbers") {
  const std::int64_t large = (std::int64_t{1} << 33) + 5;
  const SiteFaultContext context{.grid = {.dims = 2, .images = 2, .size = {1, 4, 4}}, .max_sites = 3, .max_pairs = 7};
  const auto bound = bound_checking([](const KernelRun&) {}, 0, context);
  CHECK(!bound->fault().empty());
  const auto text = [&](SiteFault kind, std::int32_t row, std::int32_t other, std::int64_t count) {
    const std::int32_t words[fault_words] = {
        static_cast<std::int32_t>(kind),       row, other, 1, 2, 3, 9, static_cast<std::int32_t>(count & 0xFFFFFFFF),
        static_cast<std::int32_t>(count >> 32)};
    return fault_of(*bound, words);
  };
  CHECK(text(SiteFault::outside, 5, -1, 0) == "site 5 (1, 2, 3) lies outside 2 images of 4x4");
  CHECK(text(SiteFault::twice, 5, -1, 0) == "site 5 (1, 2, 3) occurs twice");
  CHECK(text(SiteFault::twice, 5, 4, 0) == "site 5 (1, 2, 3) occurs twice: site 4 is the same");
  CHECK(text(SiteFault::behind_empty, 5, 2, 0) == "site 5 (1, 2, 3) comes after row 2, which holds no site");
  SiteFaultWords in_volume =
      read_fault(std::vector<std::int32_t>{static_cast<std::int32_t>(SiteFault::outside), 5, -1, 1, 2, 3, 9, 8, 7});
  CHECK(site_fault_text(in_volume, {.grid = {.dims = 3, .images = 2, .size = {4, 4, 4}}}) ==
        "site 5 (1, 2, 3, 9) lies outside 2 images of 4x4x4");
  CHECK(text(SiteFault::pairs, 0, -1, large) == "8589934597 pairs, more than the bound of 7 (max_pairs)");
  CHECK(text(SiteFault::output_sites, 0, -1, 4) == "4 output sites, more than the bound of 3 (max_sites)");
}

}  // namespace lenslet::test
