// Quality of the rule's choices on CUDA, by times measured on an H200 on 22 November 2026 (`lenslet bench conv
// --all-algorithms --same-buffers`, with bias and ReLU; Winograd of 5x5 on the 24th by lenslet-bench-winograd):
// data/h200_conv_batch1.txt has 52 layers at batch 1 that the estimates' constants were fitted to,
// data/h200_conv_unseen.txt 96 others. Candidates without a time are counted and skipped; the chosen one must have a
// time. For 16 bits and TF32 by times on an H100 of 25 November 2026: data/h100_tensor_cores.txt, configurations of 349
// random convolutions and layers of networks (bench-cudnn --drawn, lenslet-bench-implicit-gemm), which also adjusted
// constants. Needs no device.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ops/conv/conv.h"
#include "ops/core/choose.h"
#include "tests/ops/measured_convs.h"

namespace lenslet::test {
namespace {

/// A table, and the allowed ratio of a choice to the fastest candidate.
struct Table {
  const char* file;
  std::size_t layers, times;
  double worst, mean;  ///< ratios; geometric mean
};
constexpr Table fitted{"h200_conv_batch1.txt", 52, 298, 1.1, 1.01};
constexpr Table unseen{"h200_conv_unseen.txt", 96, 460, 1.12, 1.01};

using Layer = MeasuredConv;

std::vector<Layer> read_layers(const Table& table) {
  std::vector<Layer> layers = read_measured(table.file);
  for (const Layer& layer : layers)
    for (const auto& time : layer.us)
      REQUIRE_MESSAGE(find_kernel("Conv", DeviceKind::cuda, time.first) != nullptr, time.first);
  return layers;
}

/// An H200, with cuBLAS or without.
DeviceProfile h200(bool cublas) {
  DeviceProfile device = reference_gpu();
  if (cublas) device.cublas_reason.clear();
  return device;
}

/// The rule's choice.
Choice choose(const Layer& layer, const DeviceProfile& device) {
  const ConvProblem& p = layer.problem;
  const auto problem = pose(p, Tensor(DType::f32, {p.k, p.group_c(), p.r, p.s}));
  return choose_kernel(*problem, {.device = device}, p.str());
}

/// Measured time, with the conversions needed in a network; empty if not measured.
std::optional<double> measured_us(const Layer& layer, const Choice::Row& row) {
  const auto at = layer.us.find(row.kernel->name());
  if (at == layer.us.end()) return std::nullopt;
  return at->second + row.neighbours_us;
}

/// The rule's choice, and the fastest candidate.
struct Judged {
  std::string chosen, fastest;
  std::optional<double> chosen_us;
  double fastest_us = std::numeric_limits<double>::infinity();
  int unmeasured = 0;  ///< among the candidates
};

Judged judge(const Layer& layer, const DeviceProfile& device) {
  const Choice choice = choose(layer, device);
  Judged judged;
  judged.chosen = choice.kernel->name();
  for (const Choice::Row& row : choice.rows) {
    if (!row.refusal.empty()) continue;
    const std::optional<double> us = measured_us(layer, row);
    if (row.kernel == choice.kernel) judged.chosen_us = us;
    if (!us) ++judged.unmeasured;
    if (!us || *us >= judged.fastest_us) continue;
    judged.fastest_us = *us;
    judged.fastest = row.kernel->name();
  }
  return judged;
}

void check_choices(const Table& table) {
  for (const bool cublas : {false, true}) {
    double log_ratios = 0;
    int judged_layers = 0, unmeasured = 0;
    for (const Layer& layer : read_layers(table)) {
      const Judged judged = judge(layer, h200(cublas));
      INFO(layer.by, " ", layer.problem.str(), ": ", judged.chosen, " ", judged.chosen_us.value_or(0), " us, fastest ",
           judged.fastest, " ", judged.fastest_us, std::string(cublas ? ", with cuBLAS" : ""));
      unmeasured += judged.unmeasured;
      CHECK_MESSAGE(judged.chosen_us, "chosen, and not measured: ", std::string(table.file), " lacks its time");
      if (!judged.chosen_us) continue;
      CHECK(*judged.chosen_us <= table.worst * judged.fastest_us);
      log_ratios += std::log(*judged.chosen_us / judged.fastest_us);
      ++judged_layers;
    }
    CHECK(std::exp(log_ratios / judged_layers) <= table.mean);
    if (unmeasured > 0)
      MESSAGE(std::string(table.file) << ": " << unmeasured << " times of candidates are not measured");
  }
}

}  // namespace

TEST_CASE("conv/cuda_choice/all_that_was_measured_is_there") {
  for (const Table& table : {fitted, unseen}) {
    const std::vector<Layer> layers = read_layers(table);
    CHECK(layers.size() == table.layers);
    std::size_t times = 0;
    for (const Layer& layer : layers) times += layer.us.size();
    CHECK(times == table.times);
  }
}

TEST_CASE("conv/cuda_choice/chosen_is_near_the_fastest_on_layers_it_was_fitted_on") { check_choices(fitted); }

TEST_CASE("conv/cuda_choice/chosen_is_near_the_fastest_on_layers_it_was_not_fitted_on") { check_choices(unseen); }

TEST_CASE("conv/cuda_choice/chosen_is_near_the_fastest_of_tensor_cores") {
  // As in the measurements.
  DeviceProfile h100 = h200(true);
  h100.tf32_flops_per_us = 381.4e6;
  h100.half_flops_per_us = 762.8e6;
  h100.bytes_per_us = 2.933e6;
  h100.cluster_units = {0, 0, 132, 117, 120, 110, 102, 105, 120};
  constexpr double worst = 1.35, mean = 1.015;

  const std::vector<MeasuredConv> measured = read_measured("h100_tensor_cores.txt");
  CHECK(measured.size() == 349);
  double log_ratios = 0;
  for (const MeasuredConv& conv : measured) {
    const Numerics numerics = parse_numerics(conv.by);
    ConvProblem p = conv.problem;
    p.storage = p.x_storage = numerics.storage;
    const auto node = pose(p, Tensor(DType::f32, {p.k, p.group_c(), p.r, p.s}));
    const Choice choice = choose_kernel(*node, {.device = h100, .numerics = numerics}, p.str());
    const std::string &config = choice.candidate.config,
                      chosen = std::string(choice.kernel->name()) + (config.empty() ? "" : " " + config);
    INFO(conv.by, " ", conv.problem.str(), ": ", chosen);
    const auto us = conv.us.find(chosen);
    CHECK_MESSAGE(us != conv.us.end(), "is not measured");
    if (us == conv.us.end()) continue;
    const auto fastest = std::ranges::min_element(conv.us, {}, [](const auto& tiling) { return tiling.second; });
    CHECK_MESSAGE(us->second <= worst * fastest->second, "fastest ", fastest->first);
    log_ratios += std::log(us->second / fastest->second);
  }
  CHECK(std::exp(log_ratios / static_cast<double>(measured.size())) <= mean);
}

TEST_CASE("conv/cuda_choice/estimates_are_near_what_was_measured") {
  // Estimates of algorithms far from the fastest may be off by more: only possible winners matter.
  constexpr double contender = 1.5;
  double squares = 0;
  int counted = 0;
  for (const Layer& layer : read_layers(fitted)) {
    const Choice choice = choose(layer, h200(true));
    const double fastest = judge(layer, h200(true)).fastest_us;
    for (const Choice::Row& row : choice.rows) {
      if (!row.refusal.empty()) continue;
      const std::optional<double> us = measured_us(layer, row);
      if (!us) continue;
      const double estimate = row.total_us();
      INFO(layer.by, " ", std::string(row.kernel->name()), ": ", *us, " us measured, ", estimate, " estimated");
      if (*us > contender * fastest) {
        CHECK(estimate > fastest);  // but must not look like a winner
        continue;
      }
      const double error = std::log(estimate / *us);
      CHECK(std::abs(error) <= std::log(1.4));
      squares += error * error;
      ++counted;
    }
  }
  CHECK(counted >= 70);
  CHECK(std::sqrt(squares / counted) <= 0.15);
}

TEST_CASE("conv/cuda_choice/few_pixels") {
  // Squeeze-and-excite, and up to eight pixels in all images; the order of summation does not depend on the device.
  DeviceProfile half = h200(false);
  half.units /= 2;
  const auto check_taken = [&](const Shape& x, std::int64_t k, const char* config) {
    for (const DeviceProfile& device : {h200(true), h200(false), half}) {
      const Choice choice = choose({"", resolve_conv(x, {k, x[1], 1, 1}, {}), {}}, device);
      CAPTURE(x.str());
      CHECK(choice.kernel->name() == "few_pixels");
      CHECK(choice.candidate.config == config);
      CHECK(choice.candidate.outputs[0] == formats::nhwc);
    }
  };
  check_taken({1, 1152, 1, 1}, 48, "kernel=few_rows split_k=8");
  check_taken({8, 8, 1, 1}, 32, "kernel=few_rows split_k=8");
  check_taken({2, 30, 2, 2}, 16, "kernel=few_rows split_k=8");
  check_taken({1, 1280, 1, 1}, 4224, "kernel=few_rows split_k=2");

  const auto refusal = [](const ConvProblem& p) {
    const auto node = pose(p, Tensor(DType::f32, {p.k, p.group_c(), p.r, p.s}));
    return find_kernel("Conv", DeviceKind::cuda, "few_pixels")->offer(*node, {.device = h200(true)}).refusal;
  };
  CHECK(refusal(parse_conv("3x8x1x3 -> 8, 1x1 s1 p0 g1")) == "more than 8 output pixels");
  ConvProblem residual = parse_conv("1x8x1x1 -> 8, 1x1 s1 p0 g1");
  residual.residual = true;
  CHECK(refusal(residual).find("residual") == 2);
  for (const ConvProblem& p : {parse_conv("1x8x1x1 -> 8, 1x1 s1 p0 g2"), parse_conv("1x8x2x2 -> 8, 2x2 s1 p0 g1"),
                               parse_conv("1x8x3x3 -> 8, 1x1 s2 p0 g1"), parse_conv("1x8x1x1 -> 8, 1x1 s3 p1 g1")})
    CHECK_MESSAGE(refusal(p).find("not a plain product") == 0, p.str());
}

TEST_CASE("conv/cuda_choice/only_long_products_are_held_to_an_even_share") {
  const auto config = [](const Shape& x, std::int64_t k) {
    const ConvProblem p = resolve_conv(x, {k, x[1], 1, 1}, {});
    const auto node = pose(p, Tensor(DType::f32, {p.k, p.c, 1, 1}));
    const Offer offer = find_kernel("Conv", DeviceKind::cuda, "implicit_gemm")->offer(*node, {.device = h200(true)});
    return offer.candidates.at(0).config;
  };
  CHECK(config({8, 256, 56, 56}, 64).ends_with(" resident=3"));
  CHECK(config({1, 24, 56, 56}, 144).find("resident") == std::string::npos);
}

TEST_CASE("conv/cuda_choice/drawn_convolutions") {
  // Times on an H100 on 25 November 2026 in us; in brackets the previous choice.
  struct Row {
    std::string_view numerics;
    std::int64_t n, c, h, k, window, stride, groups;
    std::string_view kernel, config;
  };
  constexpr Row rows[] = {
      {"fp16", 1, 576, 14, 576, 3, 1, 24, "mma_gemm", "tile=32x32 split_k=1"},          // 3.1 (grouped_mma 6.9)
      {"fp16", 1, 192, 35, 192, 1, 1, 6, "wgmma_gemm", "tile=128x64 together=2"},       // 2.2 (mma_gemm 2.1)
      {"fp16", 8, 576, 28, 576, 3, 2, 24, "grouped_mma", "rows=3"},                     // 8.4 (mma_gemm 11.2)
      {"fp16", 64, 72, 112, 72, 3, 2, 3, "grouped_mma", "rows=3"},                      // 101 (mma_gemm 141)
      {"fp16", 1, 32, 16, 32, 3, 1, 1, "wgmma_gemm", "tile=64x64 split_k=4 width=32"},  // 2.6 (mma_gemm 3.3)
      {"fp16", 1, 1024, 14, 2048, 1, 1, 1, "wgmma_gemm", "tile=128x64"},                // 5.7 (64x64 split_k=1 6.5)
      {"fp16", 64, 1280, 8, 384, 1, 1, 1, "wgmma_gemm", "tile=128x96"},                 // 8.7 (192x64 10.0)
      {"fp16", 64, 16, 20, 16, 1, 1, 1, "thin_mma", "sets=1"},                          // 2.1 (wgmma_gemm 2.7)
      {"tf32", 8, 1024, 7, 1024, 3, 1, 1, "wgmma_halo", "lines=14 filters=64 split_k=1 taps=3"},   // 52 (wgmma_tf32 71)
      {"tf32", 1, 1024, 16, 1024, 3, 1, 1, "wgmma_halo", "lines=14 filters=64 split_k=2 taps=3"},  // 31 (wgmma_tf32 34)
      {"tf32", 1, 208, 14, 208, 3, 1, 26, "mma_gemm", "tile=32x32 split_k=1"},    // 2.9 (wgmma_halo 3.5)
      {"tf32", 1, 32, 112, 48, 1, 1, 1, "wgmma_tf32", "tile=128x64"},             // 3.4 (128x64 split_k=1 4.5)
      {"tf32", 8, 1280, 8, 384, 1, 1, 1, "wgmma_tf32", "tile=128x64 split_k=4"},  // 6.2 (128x128 split_k=8 7.4)
      {"tf32", 8, 512, 7, 512, 3, 1, 1, "wgmma_halo",
       "lines=14 filters=64 split_k=2 taps=3"},  // 17.2 (wgmma_tf32 18.2)
  };
  for (const Row& row : rows) {
    const Numerics numerics = parse_numerics(row.numerics);
    const std::int64_t pad = row.window / 2;
    ConvProblem p =
        resolve_conv({row.n, row.c, row.h, row.h}, {row.k, row.c / row.groups, row.window, row.window},
                     {.stride = {row.stride, row.stride}, .pads = {pad, pad, pad, pad}, .groups = row.groups});
    p.bias = true;
    p.activation.kind = Activation::Kind::relu;
    p.storage = p.x_storage = numerics.storage;
    const auto problem = pose(p, Tensor(DType::f32, {p.k, p.group_c(), p.r, p.s}));
    const Choice choice = choose_kernel(*problem, {.device = h200(true), .numerics = numerics}, p.str());
    INFO(std::string(row.numerics), " ", p.str());
    CHECK(choice.kernel->name() == row.kernel);
    CHECK(choice.candidate.config == row.config);
  }
}

TEST_CASE("conv/cuda_choice/sixteen_bits_always_have_a_kernel") {
  // Mostly groups: odd sizes, with more or fewer filters than channels.
  std::mt19937 random(1);
  const auto draw = [&](std::int64_t most) { return std::uniform_int_distribution<std::int64_t>(1, most)(random); };
  for (int i = 0; i < 300; ++i) {
    const std::int64_t groups = draw(3) == 1 ? 1 : draw(20), c = draw(20), k = draw(20), window = draw(5);
    const ConvGeometry geometry{.stride = {draw(2), draw(3)}, .groups = groups};
    Layer layer{"drawn", resolve_conv({draw(3), groups * c, 30, 20}, {groups * k, c, window, draw(5)}, geometry), {}};
    for (const DType type : {DType::f16, DType::bf16}) {
      layer.problem.storage = layer.problem.x_storage = type;
      CAPTURE(layer.problem.str());
      const auto problem =
          pose(layer.problem, Tensor(DType::f32, {layer.problem.k, layer.problem.group_c(), window, layer.problem.s}));
      const Numerics numerics = parse_numerics(type == DType::f16 ? "fp16" : "bf16");
      CHECK_NOTHROW((void)choose_kernel(*problem, {.device = h200(true), .numerics = numerics}, layer.problem.str()));
    }
  }
}

TEST_CASE("conv/cuda_choice/kernels_that_a_block_has_too_little_shared_memory_for_are_refused") {
  ConvGeometry geometry;
  geometry.pads = {1, 1, 1, 1};
  const Layer layer{"3x3", resolve_conv({1, 64, 56, 56}, {64, 64, 3, 3}, geometry), {}};
  const auto refused = [&](std::size_t bytes) {
    DeviceProfile device = h200(true);
    device.shared_bytes_per_block = bytes;
    std::set<std::string, std::less<>> names;
    for (const Choice::Row& row : choose(layer, device).rows)
      if (row.refusal.find("KiB of shared memory, and the device gives") != std::string::npos)
        names.emplace(row.kernel->name());
    return names;
  };
  // The least shared memory from compute capability 8.0 on: 8.6, 8.9 and 12.0.
  CHECK(refused(99 << 10).empty());
  CHECK(refused((96 << 10) - 1) == std::set<std::string, std::less<>>{"direct_tile", "direct_tile_padded"});
  CHECK(refused(73 << 10) ==
        std::set<std::string, std::less<>>{"direct_tile", "direct_tile_padded", "implicit_gemm", "implicit_gemm_nchw"});
  CHECK(refused(48 << 10) == std::set<std::string, std::less<>>{"direct_tile", "direct_tile_padded", "implicit_gemm",
                                                                "implicit_gemm_nchw", "winograd_f2", "winograd_f4"});
}

}  // namespace lenslet::test
