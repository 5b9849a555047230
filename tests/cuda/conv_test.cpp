// Every CUDA convolution algorithm on every problem of tests/ops/conv_cases.cpp and on random ones, compared with the
// double-precision oracle. An algorithm added to ops/conv/rows.cpp is tested without a change here.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdint>
#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "ops/conv/conv.h"
#include "tests/cuda/device_case.h"
#include "tests/cuda/every_tiling.h"
#include "tests/ops/conv_cases.h"
#include "tests/ops/conv_data.h"
#include "tests/ops/op_runner.h"
#include "tests/random_seed.h"

namespace lenslet::test {
namespace {

// Registered as "cuda/conv/ALGORITHM".
void run_named_case() {
  const std::string name = doctest::getContextOptions()->currentTest->m_name;
  const Kernel* algorithm = find_kernel("Conv", DeviceKind::cuda, name.substr(name.rfind('/') + 1));
  REQUIRE(algorithm != nullptr);
  const unsigned seed = random_seed();
  std::mt19937 random(seed);
  const int stride = reduced() ? 7 : 1;  // every seventh problem
  // In every supported precision; TF32 only for algorithms without another float32 (im2col_gemm is tested below).
  int arithmetics = 0;
  for (const char* name_of : {"fp32", "tf32", "fp16", "bf16"}) {
    const Numerics numerics = parse_numerics(name_of);
    if (!algorithm->types().contains(numerics.storage)) continue;
    const auto stored = [&](ConvProblem p, bool float_input) {
      p.storage = numerics.storage;
      p.x_storage = float_input ? DType::f32 : p.storage;
      return p;
    };
    for (const bool float_input : {false, true}) {
      if (float_input && numerics.storage == DType::f32) continue;
      int index = 0, accepted = 0;
      for (const ConvCase& c : conv_cases()) {
        const ConvProblem p = stored(c.problem, float_input);
        if (!accepts(*algorithm, p, numerics)) continue;
        if (numerics.storage == DType::f32 && numerics != Numerics() && accepts(*algorithm, p)) break;
        ++accepted;
        if (index++ % stride == 0) check_conv(*algorithm, p, seed, 1, numerics);
      }
      if (accepted == 0) continue;
      CHECK(accepted >= 5);
      ++arithmetics;
      for (int i = 0; i < 60 / stride; ++i)
        check_conv(*algorithm, stored(random_problem(random), float_input), seed + static_cast<unsigned>(i), 1,
                   numerics);
    }
  }
  CHECK(arithmetics > 0);
}

int register_cases() {
  static std::deque<std::string> names;  // doctest keeps the pointers
  for (const Kernel* algorithm : kernels_of("Conv", DeviceKind::cuda)) {
    if (algorithm->name() == "planes") continue;  // for 3-D alone: tests/ops/volume_test.cpp
    names.push_back(fmt::format("cuda/conv/{}", algorithm->name()));
    doctest::detail::regTest(
        doctest::detail::TestCase(run_named_case, __FILE__, __LINE__, doctest::detail::TestSuite()) *
        names.back().c_str());
  }
  return 0;
}
[[maybe_unused]] const int registered = register_cases();

}  // namespace

// Other bits show that the tensor cores were used.
TEST_CASE("cuda/conv_numerics/tf32_when_asked_for") {
  const unsigned seed = random_seed();
  for (const std::int64_t filter : {1, 3}) {
    const ConvProblem p = parse_conv(fmt::format("2x64x30x30 -> 128, {0}x{0} s1 p1 g1", filter));
    for (const char* const precision : {"fp32", "tf32"}) check_tilings("im2col_gemm", p, precision, seed, as_planned);
    std::mt19937 random(seed);
    const ConvData data = make_conv_data(p, random);
    const Tensor exact = convolved("im2col_gemm", p, "fp32", data.x, data.w),
                 rounded = convolved("im2col_gemm", p, "tf32", data.x, data.w);
    CHECK(std::memcmp(exact.data(), rounded.data(), exact.bytes()) != 0);
  }
}

TEST_CASE("cuda/conv_numerics/x_is_rounded_to_the_nearest_tf32") {
  for (const char* const name : {"stem", "mma_gemm"})
    check_rounds_to_tf32(name, parse_conv("2x4x12x19 -> 4, 1x1 s1 p0 g1"));
}

// Small problems alone would use low strips only.
TEST_CASE("cuda/conv_depthwise/strips_of_any_height") {
  unsigned seed = random_seed();
  constexpr const char* activations[] = {" +residual", " +clip(0,6)", " +silu"};
  for (const char* precision : {"fp16", "bf16"})
    for (const std::int64_t stride : {1, 2})
      // One and several chunks of channel vectors; vectors of four and of two.
      for (const std::int64_t c : {24, 192, 10})
        for (const std::int64_t rows : {1, 2, 3, 4, 5, 6, 7, 9, 13}) {
          const ConvProblem p = parse_conv(fmt::format("2x{0}x{1}x11 -> {0}, 3x3 s{2} p1 g{0}{3}{4}", c, 13 * stride,
                                                       stride, rows % 2 == 0 ? " +bias" : "", activations[rows % 3]));
          check_tilings("depthwise", p, precision, seed++, [&](const Planned& planned) {
            std::string config = planned.candidate.config;
            const std::size_t at = config.find("rows=") + 5;
            return std::vector{Tiling{config.replace(at, config.find(' ', at) - at, fmt::format("{}", rows))}};
          });
        }
}

// Several filters a channel: a thread's filters belong to one channel, to two with the second starting anywhere, or to
// more; and a number that no thread of several divides.
TEST_CASE("cuda/conv_depthwise/several_filters_a_channel") {
  unsigned seed = random_seed();
  constexpr const char* activations[] = {" +residual", " +relu", " +silu"};
  for (const char* const precision : {"fp32", "fp16", "bf16"})
    for (const std::int64_t filters : {2, 3, 4, 5, 8, 11, 16, 22})
      for (const std::int64_t c : {1, 8, 16}) {
        const ConvProblem p =
            parse_conv(fmt::format("2x{0}x9x13 -> {1}, 3x4 s{2}x2 p1,0,2,1 g{0} d1x{3}{4}{5}", c, c * filters,
                                   filters % 2 + 1, filters % 3 + 1, c != 8 ? " +bias" : "", activations[filters % 3]));
        const std::int64_t lanes = std::string_view(precision) == "fp32" ? 4 : 8;
        check_tilings("depthwise", p, precision, seed++, [&](const Planned& planned) {
          std::vector<Tiling> tilings{{planned.candidate.config}, {"tile=any1 threads=64"}};
          for (const std::int64_t channels : {std::int64_t{2}, lanes})
            if (p.k % lanes == 0 && (channels == lanes || filters >= lanes))
              tilings.push_back({fmt::format("tile=any{}of{} threads=64", lanes, channels)});
          return tilings;
        });
      }
}

// Large windows with every tile; the plan uses only one for each problem.
TEST_CASE("cuda/conv_depthwise/tiles_of_7x7") {
  unsigned seed = random_seed();
  struct Tiles {
    const char* precision;
    std::int64_t stride;
    std::vector<const char*> names;
  };
  for (const auto& [precision, stride, names] :
       {Tiles{"fp32", 1, {"2x4", "1x2", "1x1"}}, Tiles{"fp32", 2, {"1x2", "1x1"}}, Tiles{"fp16", 1, {"2x4", "1x1"}},
        Tiles{"fp16", 2, {"1x2", "1x1"}}, Tiles{"bf16", 1, {"2x4", "1x1"}}, Tiles{"bf16", 2, {"1x2", "1x1"}}})
    for (const char* const row :
         {"3x24x1x4 -> 24, 7x7 s{} p3,2,3,4 g24 +relu", "3x24x6x9 -> 24, 7x7 s{} p3,2,3,4 g24 +bias",
          "3x24x17x20 -> 24, 7x7 s{} p3,2,3,4 g24 +bias +residual +silu"}) {
      const ConvProblem p = parse_conv(fmt::format(fmt::runtime(row), stride));
      check_tilings("depthwise", p, precision, seed++, [&names = names](const Planned&) {
        std::vector<Tiling> tilings;
        for (const char* const name : names) tilings.push_back({fmt::format("tile={} threads=64", name)});
        return tilings;
      });
    }
}

// Windows that leave the image on all sides, channels that do not fill a block, rows and strips beyond the output.
TEST_CASE("cuda/conv_depthwise/shared_tiles") {
  unsigned seed = random_seed();
  constexpr const char* activations[] = {" +bias +residual +silu", " +bias +clip(0,6)", " +relu", " +bias +residual"};
  for (const char* const precision : {"fp16", "bf16"})
    for (const std::int64_t size : {5, 7, 9, 11, 13})
      for (const std::int64_t c : {8, 24, 72}) {
        const ConvProblem p = parse_conv(fmt::format("3x{0}x17x20 -> {0}, {1}x{1} s1 p{2},{3},{4},{2} g{0}{5}", c, size,
                                                     size / 2, size - 2, size - 1, activations[seed % 4]));
        check_tilings("depthwise", p, precision, seed++, [](const Planned& planned) {
          return std::vector<Tiling>{{planned.candidate.config},
                                     {"tile=2x7 rows=2 strips=1 threads=32"},
                                     {"tile=2x7 rows=6 strips=3 threads=48"},
                                     {"tile=2x7 rows=18 strips=2 threads=128"}};
        });
      }
}

}  // namespace lenslet::test
