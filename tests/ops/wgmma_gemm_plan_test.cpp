// wgmma_gemm's plans, and what its TMA loads and threads find where: plain arithmetic, needs no device.

#include "ops/conv/cuda/wgmma_gemm_plan.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lenslet/error.h"
#include "tests/expect_error.h"
#include "tests/ops/conv_cases.h"
#include "tools/measuring/parse_conv.h"

namespace lenslet::test {
namespace {

using namespace lenslet::cuda;

ConvProblem halves(ConvProblem p) {
  p.storage = p.x_storage = DType::f16;
  return p;
}

/// Those of conv_cases(), and more with remainders of strides, dilations and one-sided pads.
std::vector<ConvProblem> geometries() {
  std::vector<ConvProblem> all;
  for (const ConvCase& c : conv_cases()) all.push_back(c.problem);
  for (const std::int64_t size : {1, 2, 7, 10, 16})
    for (const std::int64_t window : {1, 2, 3, 5})
      for (const std::int64_t stride : {1, 2, 3, 8})
        for (const std::int64_t dilation : {1, 2, 4})
          for (const std::array<std::int64_t, 4>& pads :
               {std::array<std::int64_t, 4>{0, 0, 0, 0}, {1, 1, 1, 1}, {0, 2, 3, 1}, {5, 0, 0, 4}, {4, 8, 12, 16}}) {
            if ((window - 1) * dilation + 1 > size + std::min(pads[0] + pads[2], pads[1] + pads[3])) continue;
            all.push_back(
                resolve_conv({2, 8, size, size + 1}, {8, 8, window, window},
                             {.stride = {stride, stride == 8 ? 1 : stride}, .dilation = {dilation, 1}, .pads = pads}));
          }
  return all;
}

/// How TMA walks through the windows of a box (PTX ISA, "Im2col mode").
struct BoxWalk {
  const ConvProblem& p;
  Im2colBox box;
  WindowStart at;

  void next() {
    at.w += box.stride_w;
    if (at.w <= p.w - 1 + box.upper_w) return;
    at.w = box.lower_w;
    at.h += box.stride_h;
    if (at.h <= p.h - 1 + box.upper_h) return;
    at.h = box.lower_h;
    ++at.n;
  }
};

double input(const ConvProblem& p, std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) {
  if (n >= p.n || c >= p.c || h < 0 || h >= p.h || w < 0 || w >= p.w) return 0;
  return static_cast<double>((((n * p.h + h) * p.w + w) * p.c + c) * 7919 % 31 - 15);
}
double weight(const ConvProblem& p, std::int64_t k, std::int64_t tap, std::int64_t c) {
  if (k >= p.k || c >= p.c || tap >= p.r * p.s) return 0;
  return static_cast<double>(((k * p.r * p.s + tap) * p.c + c) * 104729 % 29 - 14);
}

}  // namespace

TEST_CASE("conv/wgmma_gemm_plan/boxes_have_the_windows_of_the_problem") {
  int walked = 0;
  for (const ConvProblem& p : geometries()) {
    if (refuse_im2col(p) || p.n == 0) continue;
    CAPTURE(p.str());
    const Im2colBox box = im2col_box(p);
    for (const int corner : {box.lower_w, box.lower_h, box.upper_w, box.upper_h}) {
      CHECK(corner >= -128);
      CHECK(corner <= 127);
    }
    CHECK(p.w + box.upper_w > box.lower_w);
    CHECK(p.h + box.upper_h > box.lower_h);
    // The box of the original pads, as in CUTLASS, is equal except for the remainder of a stride.
    const auto same = [](std::int64_t upper, std::int64_t pad, std::int64_t window, std::int64_t dilation,
                         std::int64_t stride) {
      const std::int64_t usual = pad - (window - 1) * dilation;
      return upper <= usual && usual < upper + stride;
    };
    CHECK(same(box.upper_w, p.pad_right, p.s, p.dilation_w, p.stride_w));
    CHECK(same(box.upper_h, p.pad_bottom, p.r, p.dilation_h, p.stride_h));

    const WindowWalk<> walk(p);
    BoxWalk engine{p, box, walk.start(0)};
    bool right = true;
    int pixel = 0;
    for (int n = 0; n < p.n; ++n)
      for (int h = 0; h < p.p; ++h)
        for (int w = 0; w < p.q; ++w, ++pixel, engine.next()) {
          const WindowStart at = walk.start(pixel);
          right = right && at.w == w * p.stride_w - p.pad_left && at.h == h * p.stride_h - p.pad_top && at.n == n;
          right = right && at.w == engine.at.w && at.h == engine.at.h && at.n == engine.at.n;
        }
    CHECK(right);
    CHECK(engine.at.n == p.n);  // what a tile has beyond y is outside of x
    ++walked;
  }
  CHECK(walked > 500);
}

TEST_CASE("conv/wgmma_gemm_plan/refuses_what_tensor_maps_cannot_say") {
  const auto refused = [](const char* p) { return refuse_im2col(parse_conv(p)).has_value(); };
  CHECK(!refused("1x8x300x300 -> 8, 3x3 s1 p128,128,127,127 g1"));
  CHECK(refused("1x8x300x300 -> 8, 3x3 s1 p129,0,0,0 g1"));
  CHECK(refused("1x8x300x300 -> 8, 3x3 s1 p0,0,0,130 g1"));
  CHECK(!refused("1x8x300x300 -> 8, 3x3 s1 p0 g1 d64x1"));  // windows end at -128
  CHECK(refused("1x8x300x300 -> 8, 3x3 s1 p0 g1 d65x1"));   // -130
  CHECK(!refused("1x8x300x300 -> 8, 1x1 s8 p0 g1"));
  CHECK(refused("1x8x300x300 -> 8, 1x1 s1x9 p0 g1"));
  CHECK(!refused("1x8x300x300 -> 8, 2x2 s1 p127x0 g1 d255x1"));
  CHECK(refused("1x8x300x300 -> 8, 2x2 s1 p127x0 g1 d256x1"));  // offset 256
  CHECK(!refused("1x8x300x300 -> 8, 2x2 s1 p0x127 g1 d1x255"));
  CHECK(refuse_im2col(parse_conv("1x8x300x300 -> 8, 2x2 s1 p0x127 g1 d1x256")) ==
        "a window of more than 256 lines or columns");
}

TEST_CASE("conv/wgmma_gemm_plan/steps_add_up_to_the_convolution") {
  // Contents of a tile's k-blocks: groups of channels of a tap from the windows' starts, zeros outside of x and the
  // filters. For leftover groups of a k-block both are zero: elements outside of one might meet an infinity.
  const ConvProblem problems[] = {
      parse_conv("2x72x5x6 -> 16, 3x3 s2x1 p1,2,0,3 g1 d1x2"), parse_conv("3x64x4x4 -> 8, 1x1 s1 p0 g1"),
      parse_conv("1x8x9x7 -> 8, 2x5 s1x3 p1,0,1,4 g1"), parse_conv("2x136x6x3 -> 8, 3x1 s1 p2,0,1,0 g1 d2x1")};
  for (const ConvProblem& p : problems)
    for (const int width : wgmma_widths) {
      CAPTURE(p.str());
      CAPTURE(width);
      const WgmmaGemmPlan plan = tile_wgmma(p, WgmmaTile::t128x64, width);
      const WindowWalk<> walk(p);
      const KOrder order(p);
      bool right = true;
      for (std::int64_t tile = 0; tile < plan.tiles_m; ++tile) {
        BoxWalk engine{p, im2col_box(p), walk.start(static_cast<int>(tile) * 128)};
        for (std::int64_t row = 0; row < 128; ++row, engine.next()) {
          const std::int64_t pixel = tile * 128 + row;
          for (std::int64_t k = 0; k < p.k; ++k) {
            double sum = 0, expected = 0;
            KWalk walked;
            for (std::int64_t group = 0; group < plan.steps * plan.k_groups_per_block;
                 ++group, walked.next(order, width)) {
              if (group == plan.k_groups) CHECK(walked.tap == p.r * p.s);
              const KWalk k_walk = walked.or_zeros(order);
              for (int c = 0; c < width; ++c) {
                const double x =
                    input(p, engine.at.n, k_walk.c + c, engine.at.h + k_walk.tap_h, engine.at.w + k_walk.tap_w);
                sum += x * weight(p, k, k_walk.tap, k_walk.c + c);
                right = right && (group < plan.k_groups || (x == 0 && weight(p, k, k_walk.tap, k_walk.c + c) == 0));
              }
            }
            if (pixel < p.n * p.p * p.q)
              for (std::int64_t r = 0; r < p.r; ++r)
                for (std::int64_t s = 0; s < p.s; ++s)
                  for (std::int64_t c = 0; c < p.c; ++c)
                    expected +=
                        input(p, pixel / p.q / p.p, c, pixel / p.q % p.p * p.stride_h - p.pad_top + r * p.dilation_h,
                              pixel % p.q * p.stride_w - p.pad_left + s * p.dilation_w) *
                        weight(p, k, r * p.s + s, c);
            right = right && sum == expected;
          }
        }
      }
      CHECK(right);
    }
}

// With channels first or last, the same groups come, each once, and taps of some channels in sequence.
TEST_CASE("conv/wgmma_gemm_plan/steps_by_channels") {
  const auto halves = [](ConvProblem p) {
    p.storage = p.x_storage = DType::f16;
    return p;
  };
  const ConvProblem p = halves(parse_conv("2x136x16x13 -> 8, 3x2 s2 p2,0,1,0 g1 d2x3"));
  CHECK(goes_by_channels(p));
  CHECK(goes_by_channels(parse_conv("2x40x16x13 -> 8, 3x3 s1 p0 g1")));
  CHECK(!goes_by_channels(parse_conv("2x32x16x13 -> 8, 3x3 s1 p0 g1")));
  CHECK(!goes_by_channels(halves(parse_conv("2x136x16x13 -> 8, 3x3 s1 p0 g1"))));
  CHECK(!goes_by_channels(halves(parse_conv("2x136x16x13 -> 8, 1x1 s2 p0 g1"))));
  CHECK(!goes_by_channels(halves(parse_conv("2x64x16x13 -> 8, 3x3 s2 p0 g1"))));
  const KOrder order(p);
  const auto of = [](const KWalk& walk) { return std::array{walk.c, walk.tap, walk.tap_w, walk.tap_h}; };
  std::set<std::array<int, 4>> expected, found;
  KWalk by_taps, by_channels;
  for (int group = 0; group < 3 * 6; ++group, by_taps.next(order), by_channels.next<true>(order)) {
    expected.insert(of(by_taps));
    found.insert(of(by_channels));
    CHECK(by_channels.c == group / 6 * wgmma_step);
    CHECK(by_channels.tap == group % 6);
  }
  CHECK(found.size() == 3 * 6);
  CHECK(found == expected);
}

// Consumers reach tails when the producer loads them, and tails have the last channels of each tap.
TEST_CASE("conv/wgmma_gemm_plan/tails") {
  for (const DType storage : {DType::f16, DType::f32})
    for (const std::int64_t c : {1, 8, 16, 17, 31, 32, 33, 48, 64, 65, 72, 80, 81, 96, 97, 128, 160, 176})
      for (const std::int64_t r : {1, 3})
        for (const bool by_channels : {false, true}) {
          CAPTURE(c);
          CAPTURE(r);
          CAPTURE(by_channels);
          ConvProblem p = resolve_conv({1, c, 9, 9}, {8, c, r, 2}, {});
          p.storage = p.x_storage = storage;
          const int width = 128 / static_cast<int>(dtype_bytes(storage)), left = static_cast<int>(c) % width;
          const KTail tail(p, width);
          CHECK(tail.exists() == (left > 0 && left <= width / 2));
          if (!tail.exists()) continue;
          CHECK(tail.first == c - left);
          const KOrder k_order(p);
          CHECK(tail.instructions(k_order, width) == (left + width / 4 - 1) / (width / 4));
          const TailOrder order(k_order, tail, width, by_channels);
          KWalk walk;
          const auto go = [&](int steps, bool in_tail) {
            for (int step = 0; step < steps; ++step) {
              CHECK((walk.c >= tail.first) == in_tail);
              if (by_channels)
                walk.next<true>(k_order, width);
              else
                walk.next(k_order, width);
            }
          };
          for (int time = 0; time < order.times; ++time) {
            go(order.whole, false);
            go(order.tails, true);
          }
          CHECK(order.times * (order.whole + order.tails) == (c + width - 1) / width * r * 2);
          CHECK(walk.tap == (by_channels ? 0 : r * 2));
        }
  // One tap, a residual, narrower groups.
  ConvProblem p = halves(parse_conv("1x80x9x9 -> 8, 3x3 s1 p0 g1"));
  CHECK(KTail(p, 64).exists());
  CHECK(!KTail(p, 32).exists());
  p.residual = true;
  CHECK(!KTail(p, 64).exists());
  CHECK(!KTail(halves(parse_conv("1x80x9x9 -> 8, 1x1 s1 p0 g1")), 64).exists());
}

TEST_CASE("conv/wgmma_gemm_plan/results_lie_as_copies_take_them") {
  for (const int filters : {104, 96, 64, 32, 16}) {
    std::set<int> places;
    for (int row = 0; row < staged_rows; ++row)
      for (int eight = 0; eight < filters / 8; ++eight) {
        // PTX ISA, "Swizzling modes": in rows of 128 bytes address bits 7 to 9 change bits 4 to 6, in rows of 64 bytes
        // bits 7 and 8 change bits 4 and 5, in rows of 32 bytes bit 7 changes bit 4. Wider rows have no swizzle.
        const int dense = (row * filters + eight * 8) * 2;
        const int bits = filters >= 96 ? 0 : filters == 64 ? 7 : filters == 32 ? 3 : 1;
        CHECK(staged_offset(row, eight, filters) == (dense ^ ((dense >> 7 & bits) << 4)));
        CHECK(staged_behind(staged_offset(row, eight % 2, filters), eight / 2, filters) ==
              staged_offset(row, eight, filters));
        places.insert(staged_offset(row, eight, filters));
      }
    CHECK(places.size() == static_cast<std::size_t>(staged_rows * filters / 8));
    CHECK(*places.rbegin() == staged_rows * filters * 2 - 16);
    CHECK(*places.rbegin() < staged_box_bytes(filters));

    // A matrix of 8 rows of 16 bytes at a time; 32 banks of 4 bytes.
    for (int eight = 0; eight < filters / 8; ++eight)
      for (int first = 0; first < staged_rows; first += 8) {
        std::set<int> banks;
        for (int row = first; row < first + 8; ++row) banks.insert(staged_offset(row, eight, filters) % 128);
        CHECK(banks.size() == (filters == 96 ? 2 : 8));
      }
  }
  for (const WgmmaTileShape& tile : wgmma_tiles) CHECK(tile.n % staged_filters(tile.n) == 0);
}

TEST_CASE("conv/wgmma_gemm_plan/accumulators_fit_in_registers") {
  for (const WgmmaTileShape& tile : wgmma_tiles) {
    CAPTURE(tile.m);
    CAPTURE(tile.n);
    CHECK(tile.m % (64 * tile.consumers) == 0);
    // Of a thread's registers: 232 with two consumers, 160 with three.
    CHECK(tile.m / 64 / tile.consumers * tile.n / 2 <= (tile.consumers == 2 ? 128 : 64));
  }
}

TEST_CASE("conv/wgmma_gemm_plan/shared_memory") {
  for (const WgmmaTileShape& tile : wgmma_tiles)
    for (const bool residual : {false, true}) {
      const WgmmaShared shared = shared_of(tile, residual);
      CAPTURE(tile.m);
      CAPTURE(tile.n);
      CHECK(shared.stages >= (residual ? 3 : 4));
      CHECK(shared.pixels == tile.m * 128);
      CHECK(shared.filters == tile.n * 128);
      const int box = staged_box_bytes(tile.n), wide = wide_boxes(tile.n, shared.slots);
      CHECK(shared.slots >= 2);
      CHECK((!residual || shared.slots * box >= 6 << 10));
      CHECK(shared.slots % wide == 0);
      CHECK(shared.slots >= 2 * wide);
      CHECK(tile.n / staged_filters(tile.n) % wide == 0);
      CHECK(shared.staging == shared.stages * (shared.pixels + shared.filters));
      CHECK(shared.staging % 1024 == 0);
      CHECK(shared.barriers == shared.staging + 4 * tile.consumers * shared.slots * box);
      CHECK(shared.total == shared.barriers + 16 * shared.stages + 32 * tile.consumers * shared.slots);
      CHECK(static_cast<std::size_t>(shared.total) <= reference_gpu().shared_bytes_per_block);
    }
}

TEST_CASE("conv/wgmma_gemm_plan/tilings_and_configurations") {
  const ConvProblem p = parse_conv("8x96x28x28 -> 192, 3x3 s1 p1 g1");
  const WgmmaGemmPlan plan = tile_wgmma(p, WgmmaTile::t128x256);
  CHECK(plan.tiles_m == 49);
  CHECK(plan.tiles_n == 1);
  CHECK(plan.steps == 18);
  CHECK(plan.str() == "tile=128x256");
  for (std::size_t i = 0; i < wgmma_tiles.size(); ++i) {
    const WgmmaGemmPlan tiling = tile_wgmma(p, static_cast<WgmmaTile>(i));
    const WgmmaGemmPlan read = read_wgmma_gemm_plan(p, tiling.str());
    CHECK(read.tile == tiling.tile);
    CHECK(read.tiles_m == tiling.tiles_m);
    CHECK(read.tiles_n == tiling.tiles_n);
    CHECK(read.steps == tiling.steps);
  }
  const WgmmaGemmPlan four = read_wgmma_gemm_plan(p, "tile=64x32 split_k=4");
  CHECK(four.split_k == 4);
  CHECK(four.split_k_tile == SplitKTile::t64x32);
  CHECK(four.tiles_m == 98);
  CHECK(four.tiles_n == 6);
  CHECK(four.steps == 18);
  // Nine taps of three groups, in pairs.
  const WgmmaGemmPlan narrow = read_wgmma_gemm_plan(p, "tile=128x64 width=32");
  CHECK(narrow.width == 32);
  CHECK(narrow.split_k == 0);
  CHECK(narrow.k_groups == 27);
  CHECK(narrow.k_groups_per_block == 2);
  CHECK(narrow.steps == 14);
  for (const char* config :
       {"", "tile=", "tile=64x64", "tile=128x256 ", "tile=128x256 stages=4", "tiles=128x256", "tile=128x256 cluster=2",
        "tile=128x256 split_k=2", "tile=64x64 split_k=0", "tile=64x64 split_k=3", "tile=64x64 split_k=16",
        "tile=64x64 split_k=4 width=8", "tile=64x64 width=32 split_k=4", "tile=128x256 width=32",
        "tile=64x32 split_k=1 width=32", "tile=128x64 width=64"}) {
    CAPTURE(config);
    CHECK_ERROR((void)read_wgmma_gemm_plan(p, config), invalid_argument,
                "no kernel has this configuration for this problem");
  }
  // A single k-block cannot be split, and narrow groups must save something.
  const ConvProblem one_step = parse_conv("1x64x14x14 -> 64, 1x1 s1 p0 g1");
  CHECK_ERROR((void)read_wgmma_gemm_plan(one_step, "tile=64x64 split_k=2"), invalid_argument,
              "no kernel has this configuration for this problem");
  CHECK_ERROR((void)read_wgmma_gemm_plan(one_step, "tile=128x64 width=32"), invalid_argument,
              "no kernel has this configuration for this problem");
}

TEST_CASE("conv/wgmma_gemm_plan/every_tiling_reads_back_as_itself") {
  for (const ConvProblem& p :
       {parse_conv("1x512x7x7 -> 512, 3x3 s1 p1 g1"), parse_conv("8x16x55x55 -> 64, 3x3 s1 p1 g1"),
        parse_conv("64x24x56x56 -> 144, 1x1 s1 p0 g1"), parse_conv("1x32x28x28 -> 192, 1x1 s1 p0 g1"),
        parse_conv("1x40x5x5 -> 8, 1x1 s1 p0 g1"), parse_conv("1x8x1x1 -> 8, 1x1 s1 p0 g1")}) {
    CAPTURE(p.str());
    std::set<std::string> configs;
    const std::vector<WgmmaGemmPlan> tilings = wgmma_tilings(p);
    for (const WgmmaGemmPlan& tiling : tilings) {
      CAPTURE(tiling.str());
      configs.insert(tiling.str());
      const WgmmaGemmPlan read = read_wgmma_gemm_plan(p, tiling.str());
      CHECK(read.str() == tiling.str());
      CHECK(read.tiles_m == tiling.tiles_m);
      CHECK(read.tiles_n == tiling.tiles_n);
      CHECK(read.steps == tiling.steps);
      CHECK(tiling.split_k <= tiling.steps);
      CHECK(tiling.tiles_m * tiling.m() >= p.n * p.p * p.q);
      CHECK(tiling.tiles_n * tiling.n() >= p.k);
      CHECK(tiling.steps * tiling.k_groups_per_block >= tiling.k_groups);
      CHECK((tiling.steps - 1) * tiling.k_groups_per_block < tiling.k_groups);
      CHECK(tiling.k_groups * tiling.width >= p.r * p.s * p.c);
      const ConvProblem half = halves(p);
      const double us = wgmma_plan_us(half, tiling, reference_gpu());
      const double floor_us =
          std::max(half.flops() / reference_gpu().half_flops_per_us, half.bytes() / reference_gpu().bytes_per_us);
      const double least_us = floor_us + reference_gpu().launch_us;
      CHECK(us >= least_us);
      CHECK(us <= 40 * least_us);  // 32: a tile of 64x32 with split-K by eight
    }
    CHECK(configs.size() == tilings.size());
  }
  const auto has = [](const ConvProblem& p, std::string_view config) {
    const std::vector<WgmmaGemmPlan> tilings = wgmma_tilings(p);
    return std::any_of(tilings.begin(), tilings.end(),
                       [&](const WgmmaGemmPlan& tiling) { return tiling.str() == config; });
  };
  CHECK(has(parse_conv("1x512x7x7 -> 512, 3x3 s1 p1 g1"), "tile=64x64 split_k=8"));
  CHECK(!has(parse_conv("1x512x7x7 -> 512, 3x3 s1 p1 g1"), "tile=128x64 width=32"));
  CHECK(has(parse_conv("1x16x55x55 -> 64, 3x3 s1 p1 g1"), "tile=128x64 width=16"));
  CHECK(has(parse_conv("1x24x56x56 -> 144, 1x1 s1 p0 g1"), "tile=128x128 width=32"));
  CHECK(!has(parse_conv("1x24x56x56 -> 144, 1x1 s1 p0 g1"), "tile=128x128 width=16"));  // as many zeros
}

// A tile's filters belong to one set, and it reads the channels of all groups in the set.
TEST_CASE("conv/wgmma_gemm_plan/sets_of_groups") {
  int read_back = 0;
  for (const ConvProblem& p :
       {halves(parse_conv("8x256x28x28 -> 512, 3x3 s2 p1 g32")), halves(parse_conv("2x128x9x9 -> 128, 3x3 s1 p0 g2")),
        halves(parse_conv("1x384x7x7 -> 256, 1x1 s1 p0 g4")), halves(parse_conv("1x64x9x9 -> 64, 3x3 s1 p0 g64"))}) {
    CAPTURE(p.str());
    const std::vector<WgmmaGemmPlan> tilings = wgmma_tilings(p);
    REQUIRE(!tilings.empty());
    for (const WgmmaGemmPlan& tiling : tilings) {
      CAPTURE(tiling.str());
      CHECK(tiling.split_k == 0);
      CHECK(tiling.together * tiling.sets == p.groups);
      CHECK(tiling.tiles_n * tiling.n() == p.k);
      CHECK(tiling.tiles_n % tiling.sets == 0);
      const std::int64_t set_c = tiling.together * p.group_c();
      CHECK(set_c * 2 % 16 == 0);  // where loads may begin
      CHECK(tiling.k_groups * tiling.width >= p.r * p.s * set_c);
      const SetTiles sets{static_cast<int>(tiling.tiles_n / tiling.sets), static_cast<int>(set_c)};
      bool right = true;
      for (int tile = 0; tile < tiling.tiles_n; ++tile)
        for (std::int64_t k = tile * tiling.n(); k < (tile + 1) * tiling.n(); ++k) {
          const std::int64_t first = sets.first_channel(tile), group = k / p.group_k();
          right = right && first <= group * p.group_c() && (group + 1) * p.group_c() <= first + set_c;
        }
      CHECK(right);
      const WgmmaGemmPlan read = read_wgmma_gemm_plan(p, tiling.str());
      CHECK(read.together == tiling.together);
      CHECK(read.tiles_n == tiling.tiles_n);
      ++read_back;
    }
  }
  CHECK(read_back > 20);
  // 80 filters fill no tile, alone or merged.
  CHECK(wgmma_tilings(halves(parse_conv("1x240x14x14 -> 240, 1x1 s1 p0 g3"))).empty());
  CHECK_ERROR((void)read_wgmma_gemm_plan(halves(parse_conv("8x256x28x28 -> 512, 3x3 s2 p1 g32")), "tile=128x64"),
              invalid_argument, "no kernel has this configuration for this problem");
  CHECK(SetTiles{}.first_channel(5) == 0);
}

TEST_CASE("conv/wgmma_gemm_plan/split_k_takes_every_step_once") {
  for (const int steps : {1, 2, 7, 8, 9, 18, 72, 1000003})
    for (int log2 = 0; log2 <= 3; ++log2) {
      if (steps < 1 << log2) continue;
      CHECK(first_step(0, steps, log2) == 0);
      CHECK(first_step(1 << log2, steps, log2) == steps);
      for (int split = 0; split < 1 << log2; ++split) {
        const int count = first_step(split + 1, steps, log2) - first_step(split, steps, log2);
        CHECK(count >= steps >> log2);
        CHECK(count <= (steps + (1 << log2) - 1) >> log2);
        CHECK(count > 0);
      }
    }
  // Where a split begins in the walk.
  const ConvProblem p = parse_conv("2x72x9x9 -> 16, 3x2 s1 p4 g1 d3x2");
  const KOrder order(p);
  for (const int width : wgmma_widths) {
    KWalk walk;
    for (int group = 0; walk.tap < 6; ++group, walk.next(order, width)) {
      const KWalk at = KWalk::at(order, group, width);
      CHECK(at.c == walk.c);
      CHECK(at.tap == walk.tap);
      CHECK(at.tap_w == walk.tap_w);
      CHECK(at.tap_h == walk.tap_h);
    }
  }
}

TEST_CASE("conv/wgmma_gemm_plan/every_fragment_is_finished_once") {
  for (const SplitKTileShape& tile : split_k_tiles)
    for (const int split_k : split_k_counts) {
      CAPTURE(tile.m);
      CAPTURE(tile.n);
      CAPTURE(split_k);
      const SplitKShare share = share_of(tile.m, tile.n, log2_of(split_k));
      const int fragments = tile.m / 16 * (tile.n / 16), warps = tile.m / 16;
      CHECK(share.each() * split_k == fragments);
      CHECK(share.warps == warps);
      for (int fragment = 0; fragment < fragments; ++fragment) {
        CHECK(share.owner(fragment) >= 0);
        CHECK(share.owner(fragment) < split_k);
        CHECK(share.fragment(share.owner(fragment), share.slot(fragment)) == fragment);
      }
      std::set<int> slots;
      for (int warp = 0; warp < warps; ++warp) {
        CHECK(share.of_warp() <= tile.n / 16);  // fits the registers
        for (int i = 0; i < share.of_warp() && share.first(warp) + i < share.each(); ++i)
          CHECK(slots.insert(share.first(warp) + i).second);
      }
      CHECK(static_cast<int>(slots.size()) == share.each());
      CHECK(*slots.rbegin() == share.each() - 1);
      // Without split-K a warp finishes its own results.
      if (split_k == 1)
        for (int warp = 0; warp < warps; ++warp) CHECK(share.first(warp) == warp * (tile.n / 16));
    }
  // A fragment's transposed results: 512 bytes, without bank conflicts among eight rows.
  std::set<int> places;
  for (int row = 0; row < 16; ++row)
    for (int half = 0; half < 2; ++half) places.insert(fragment_offset(row, half));
  CHECK(places.size() == 32);
  CHECK(*places.rbegin() == 512 - 16);
  for (int first = 0; first < 16; first += 8)
    for (int half = 0; half < 2; ++half) {
      std::set<int> banks;
      for (int row = first; row < first + 8; ++row) banks.insert(fragment_offset(row, half) % 128);
      CHECK(banks.size() == 8);
    }
}

TEST_CASE("conv/wgmma_gemm_plan/shared_memory_of_split_k") {
  for (const SplitKTileShape& tile : split_k_tiles) {
    const SplitKShared shared = shared_of(tile);
    CAPTURE(tile.m);
    CAPTURE(tile.n);
    CHECK(shared.stages >= 5);
    CHECK(shared.pixels == tile.m * 128);
    CHECK(shared.filters == tile.n * 128);
    CHECK(shared.acc == shared.stages * (shared.pixels + shared.filters));
    CHECK(shared.barriers == shared.acc + tile.m * tile.n * 4);
    CHECK(shared.total == shared.barriers + 16 * shared.stages);
    const auto total = static_cast<std::size_t>(shared.total);
    CHECK(total <= reference_gpu().shared_bytes_per_block);
    CHECK(static_cast<std::size_t>(tile.blocks) * (total + 1024) <= reference_gpu().shared_bytes_per_unit);
  }
}

TEST_CASE("conv/wgmma_gemm_plan/estimate") {
  const DeviceProfile& device = reference_gpu();
  const auto us = [&](ConvProblem p) {
    p.storage = p.x_storage = DType::f16;
    const double estimate = wgmma_plan_us(p, plan_wgmma_gemm(p), device);
    // 760 TFLOP/s is sustained over seconds: 64x512x28x28 -> 512, 3x3, takes 303 us, where that would be 312.
    CHECK(estimate >= 0.9 * p.flops() / device.half_flops_per_us);
    CHECK(estimate >= p.bytes() / device.bytes_per_us);
    return estimate;
  };
  const ConvProblem large = parse_conv("64x512x28x28 -> 512, 3x3 s1 p1 g1");
  CHECK(us(large) <= 1.6 * large.flops() / device.half_flops_per_us);
  CHECK(us(parse_conv("8x512x28x28 -> 512, 3x3 s1 p1 g1")) < us(large));
  CHECK(us(parse_conv("1x64x7x7 -> 64, 1x1 s1 p0 g1")) > 0);
  // Few filters need a narrow tile.
  const WgmmaGemmPlan few_filters = plan_wgmma_gemm(parse_conv("64x64x56x56 -> 64, 3x3 s1 p1 g1"));
  CHECK(few_filters.n() == 64);
  CHECK(few_filters.split_k == 0);
  // Few tiles and a large k need split-K, few channels narrow groups, large products neither.
  CHECK(plan_wgmma_gemm(parse_conv("1x512x7x7 -> 512, 3x3 s1 p1 g1")).split_k >= 4);
  CHECK(plan_wgmma_gemm(parse_conv("1x2048x7x7 -> 512, 1x1 s1 p0 g1")).split_k >= 2);
  CHECK(plan_wgmma_gemm(parse_conv("64x16x55x55 -> 64, 3x3 s1 p1 g1")).width == 16);
  CHECK(plan_wgmma_gemm(large).split_k == 0);
  CHECK(plan_wgmma_gemm(large).width == wgmma_step);
}

}  // namespace lenslet::test
