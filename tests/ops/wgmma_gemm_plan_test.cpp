// How wgmma_gemm cuts problems, and what its copies and threads will find where: plain arithmetic, no device needed.

#include "ops/conv/cuda/wgmma_gemm_plan.h"

#include <doctest/doctest.h>

#include <set>
#include <vector>

#include "lenslet/error.h"
#include "tests/ops/conv_cases.h"

namespace lenslet::test {
namespace {

using namespace lenslet::cuda;

ConvProblem problem(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w, std::int64_t k, std::int64_t r,
                    std::int64_t s, ConvGeometry geometry = {}) {
  return resolve_conv({n, c, h, w}, {k, c / geometry.groups, r, s}, geometry);
}

/// Those of conv_cases(), and more with strides that leave something over, dilations and pads on one side.
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
                problem(2, 8, size, size + 1, 8, window, window,
                        {.stride = {stride, stride == 8 ? 1 : stride}, .dilation = {dilation, 1}, .pads = pads}));
          }
  return all;
}

/// How the copy engine goes through the windows of a box (PTX ISA, "Im2col mode").
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
  if (k >= p.k || c >= p.c) return 0;
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
    // The box of the pads as they are, which CUTLASS has, goes as far, but for what a stride leaves over.
    const auto same = [](std::int64_t upper, std::int64_t pad, std::int64_t window, std::int64_t dilation,
                         std::int64_t stride) {
      const std::int64_t usual = pad - (window - 1) * dilation;
      return upper <= usual && usual < upper + stride;
    };
    CHECK(same(box.upper_w, p.pad_right, p.s, p.dilation_w, p.stride_w));
    CHECK(same(box.upper_h, p.pad_bottom, p.r, p.dilation_h, p.stride_h));

    const WindowWalk walk(p);
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
    CHECK(engine.at.n == p.n);  // what a tile has beyond is outside of x
    ++walked;
  }
  CHECK(walked > 500);
}

TEST_CASE("conv/wgmma_gemm_plan/refuses_what_tensor_maps_cannot_say") {
  const auto refused = [](const ConvProblem& p) { return refuse_im2col(p).has_value(); };
  CHECK(!refused(problem(1, 8, 300, 300, 8, 3, 3, {.pads = {128, 128, 127, 127}})));
  CHECK(refused(problem(1, 8, 300, 300, 8, 3, 3, {.pads = {129, 0, 0, 0}})));
  CHECK(refused(problem(1, 8, 300, 300, 8, 3, 3, {.pads = {0, 0, 0, 130}})));
  CHECK(!refused(problem(1, 8, 300, 300, 8, 3, 3, {.dilation = {64, 1}})));  // windows end at -128
  CHECK(refused(problem(1, 8, 300, 300, 8, 3, 3, {.dilation = {65, 1}})));   // -130
  CHECK(!refused(problem(1, 8, 300, 300, 8, 1, 1, {.stride = {8, 8}})));
  CHECK(refused(problem(1, 8, 300, 300, 8, 1, 1, {.stride = {1, 9}})));
  CHECK(!refused(problem(1, 8, 300, 300, 8, 2, 2, {.dilation = {255, 1}, .pads = {127, 0, 127, 0}})));
  CHECK(refused(problem(1, 8, 300, 300, 8, 2, 2, {.dilation = {256, 1}, .pads = {127, 0, 127, 0}})));  // offset 256
}

TEST_CASE("conv/wgmma_gemm_plan/steps_add_up_to_the_convolution") {
  // What a tile's steps bring: 64 channels of a tap from where the windows begin, zeros outside of x and the filters.
  const ConvProblem problems[] = {
      problem(2, 72, 5, 6, 16, 3, 3, {.stride = {2, 1}, .dilation = {1, 2}, .pads = {1, 2, 0, 3}}),
      problem(3, 64, 4, 4, 8, 1, 1), problem(1, 8, 9, 7, 8, 2, 5, {.stride = {1, 3}, .pads = {1, 0, 1, 4}}),
      problem(2, 136, 6, 3, 8, 3, 1, {.dilation = {2, 1}, .pads = {2, 0, 1, 0}})};
  for (const ConvProblem& p : problems) {
    CAPTURE(p.str());
    const WgmmaGemmPlan plan = cut_wgmma(p, WgmmaTile::t128x64);
    const WindowWalk walk(p);
    const TermOrder order(p);
    bool right = true;
    for (std::int64_t tile = 0; tile < plan.tiles_m; ++tile) {
      BoxWalk engine{p, im2col_box(p), walk.start(static_cast<int>(tile) * 128)};
      for (std::int64_t row = 0; row < 128; ++row, engine.next()) {
        const std::int64_t pixel = tile * 128 + row;
        for (std::int64_t k = 0; k < p.k; ++k) {
          double sum = 0, expected = 0;
          TermWalk term;
          for (std::int64_t step = 0; step < plan.steps; ++step, term.next(order))
            for (int c = 0; c < wgmma_step; ++c)
              sum += input(p, engine.at.n, term.c + c, engine.at.h + term.tap_h, engine.at.w + term.tap_w) *
                     weight(p, k, term.tap, term.c + c);
          CHECK(term.tap == p.r * p.s);
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

TEST_CASE("conv/wgmma_gemm_plan/results_lie_as_copies_take_them") {
  std::set<int> places;
  for (int row = 0; row < staged_rows; ++row)
    for (int eight = 0; eight < staged_filters / 8; ++eight) {
      // PTX ISA, "Swizzling modes", 128 bytes: bits 4 to 6 of an address change with bits 7 to 9.
      const int dense = (row * staged_filters + eight * 8) * 2;
      CHECK(staged_offset(row, eight) == (dense ^ ((dense >> 7 & 7) << 4)));
      places.insert(staged_offset(row, eight));
    }
  CHECK(places.size() == staged_rows * staged_filters / 8);
  CHECK(*places.rbegin() == staged_bytes - 16);

  // A matrix of 8 rows of 16 bytes at a time; 32 banks of 4 bytes.
  for (int eight = 0; eight < staged_filters / 8; ++eight)
    for (int first = 0; first < staged_rows; first += 8) {
      std::set<int> banks;
      for (int row = first; row < first + 8; ++row) banks.insert(staged_offset(row, eight) % 128);
      CHECK(banks.size() == 8);
    }
}

TEST_CASE("conv/wgmma_gemm_plan/shared_memory") {
  for (const WgmmaTileShape& tile : wgmma_tiles) {
    const WgmmaShared shared = shared_of(tile);
    CAPTURE(tile.m);
    CAPTURE(tile.n);
    CHECK(shared.stages >= 4);
    CHECK(shared.pixels == tile.m * 128);
    CHECK(shared.filters == tile.n * 128);
    CHECK((shared.buffers == 2 || shared.buffers == 4));
    CHECK(shared.staging == shared.stages * (shared.pixels + shared.filters));
    CHECK(shared.staging % 1024 == 0);
    CHECK(shared.barriers == shared.staging + 8 * shared.buffers * staged_bytes);
    CHECK(shared.total == shared.barriers + 16 * shared.stages + 64 * shared.buffers);
    CHECK(static_cast<std::size_t>(shared.total) <= reference_gpu().shared_bytes_per_block);
  }
}

TEST_CASE("conv/wgmma_gemm_plan/cuts_and_configurations") {
  const ConvProblem p = problem(8, 96, 28, 28, 192, 3, 3, {.pads = {1, 1, 1, 1}});
  const WgmmaGemmPlan plan = cut_wgmma(p, WgmmaTile::t128x256);
  CHECK(plan.tiles_m == 49);
  CHECK(plan.tiles_n == 1);
  CHECK(plan.steps == 18);
  CHECK(plan.str() == "tile=128x256");
  for (std::size_t i = 0; i < wgmma_tiles.size(); ++i) {
    const WgmmaGemmPlan cut = cut_wgmma(p, static_cast<WgmmaTile>(i));
    const WgmmaGemmPlan read = read_wgmma_gemm_plan(p, cut.str());
    CHECK(read.tile == cut.tile);
    CHECK(read.tiles_m == cut.tiles_m);
    CHECK(read.tiles_n == cut.tiles_n);
    CHECK(read.steps == cut.steps);
  }
  const WgmmaGemmPlan pairs = read_wgmma_gemm_plan(p, "tile=128x128 cluster=2");
  CHECK(pairs.cluster == 2);
  CHECK(pairs.str() == "tile=128x128 cluster=2");
  for (const char* config : {"", "tile=", "tile=64x64", "tile=128x256 ", "tile=128x256 stages=4", "tiles=128x256",
                             "tile=128x256 cluster=1", "tile=128x256 cluster=3"}) {
    CAPTURE(config);
    CHECK_THROWS_AS((void)read_wgmma_gemm_plan(p, config), Error);
  }
}

TEST_CASE("conv/wgmma_gemm_plan/estimate") {
  const DeviceProfile& device = reference_gpu();
  const auto us = [&](ConvProblem p) {
    p.storage = p.x_storage = DType::f16;
    const double estimate = wgmma_plan_us(p, plan_wgmma_gemm(p, device), device);
    // 760 TFLOP/s are what seconds of products reach: 64x512x28x28 -> 512, 3x3, takes 303 us where that would be 312.
    CHECK(estimate >= 0.9 * p.flops() / device.half_flops_per_us);
    CHECK(estimate >= p.bytes() / device.bytes_per_us);
    return estimate;
  };
  const ConvGeometry pad{.pads = {1, 1, 1, 1}};
  const ConvProblem large = problem(64, 512, 28, 28, 512, 3, 3, pad);
  CHECK(us(large) <= 1.6 * large.flops() / device.half_flops_per_us);
  CHECK(us(problem(8, 512, 28, 28, 512, 3, 3, pad)) < us(large));
  CHECK(us(problem(1, 64, 7, 7, 64, 1, 1)) > 0);
  // Few filters want a narrow tile.
  CHECK(shape_of(plan_wgmma_gemm(problem(64, 64, 56, 56, 64, 3, 3, pad), device).tile).n == 64);
}

}  // namespace lenslet::test
