// How well the rule chooses on CUDA, against times measured on an H200: data/h200_conv_batch1.csv, every algorithm on
// 52 layers of known networks at batch 1 with bias and ReLU, by `lenslet bench conv`, 21 November 2026. The times of
// implicit_gemm are of the cuts it takes now, where lenslet-bench-implicit-gemm measured them. No device needed.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "ops/conv/choose.h"
#include "ops/conv/cuda/layout_cost.h"

namespace lenslet::test {
namespace {

constexpr int multiprocessors = 132;
constexpr std::size_t layers_measured = 52, times_measured = 296;

struct Layer {
  std::string name;
  ConvProblem problem;
  /// Microseconds of an algorithm by name, for NCHW with the conversions that it needs in a network.
  std::map<std::string, double, std::less<>> us;
};

std::vector<Layer> read_layers() {
  std::ifstream file(LENSLET_SOURCE_DIR "/tests/ops/data/h200_conv_batch1.csv");
  REQUIRE(file);
  const MachineRates rates = cuda_rates(multiprocessors);
  std::vector<Layer> layers;
  std::string line;
  std::getline(file, line);
  REQUIRE(line == "layer,c,h,w,k,r,s,stride,pad_h,pad_w,groups,algorithm,us");
  while (std::getline(file, line)) {
    std::replace(line.begin(), line.end(), ',', ' ');
    std::istringstream fields(line);
    std::string name, algorithm;
    std::int64_t c = 0, h = 0, w = 0, k = 0, r = 0, s = 0, stride = 0, pad_h = 0, pad_w = 0, groups = 0;
    double us = 0;
    fields >> name >> c >> h >> w >> k >> r >> s >> stride >> pad_h >> pad_w >> groups >> algorithm >> us;
    REQUIRE(fields);
    if (layers.empty() || layers.back().name != name) {
      ConvGeometry geometry;
      geometry.stride = {stride, stride};
      geometry.pads = {pad_h, pad_w, pad_h, pad_w};
      geometry.groups = groups;
      layers.push_back({name, resolve_conv({1, c, h, w}, {k, c / groups, r, s}, geometry), {}});
      layers.back().problem.bias = true;
      layers.back().problem.activation.kind = Activation::Kind::relu;
    }
    const ConvAlgorithm* known = find_conv_algorithm(DeviceKind::cuda, algorithm);
    CAPTURE(line);
    REQUIRE(known != nullptr);
    if (known->format() == formats::nchw) us += cuda::nchw_conversions_us(layers.back().problem, rates);
    layers.back().us[algorithm] = us;
  }
  return layers;
}

/// What the rule decides, and the fastest of those that it may choose: im2col_gemm needs cuBLAS, which a machine
/// without a device may lack.
struct Judged {
  std::string chosen, fastest;
  double chosen_us = 0, fastest_us = std::numeric_limits<double>::infinity();
};

Judged judge(const Layer& layer) {
  const ConvChoice choice = choose_conv(layer.problem, DeviceKind::cuda, cuda_rates(multiprocessors));
  Judged judged;
  judged.chosen = choice.algorithm->name();
  for (const ConvCandidateRow& row : choice.candidates) {
    if (!row.refusal.empty()) continue;
    const double us = layer.us.at(std::string(row.algorithm->name()));
    if (row.algorithm == choice.algorithm) judged.chosen_us = us;
    if (us >= judged.fastest_us) continue;
    judged.fastest_us = us;
    judged.fastest = row.algorithm->name();
  }
  return judged;
}

}  // namespace

TEST_CASE("conv/cuda_choice/all_that_was_measured_is_there") {
  const std::vector<Layer> layers = read_layers();
  CHECK(layers.size() == layers_measured);
  std::size_t times = 0;
  for (const Layer& layer : layers) times += layer.us.size();
  CHECK(times == times_measured);
}

TEST_CASE("conv/cuda_choice/chosen_is_within_ten_percent_of_the_fastest") {
  double log_ratios = 0;
  const std::vector<Layer> layers = read_layers();
  for (const Layer& layer : layers) {
    const Judged judged = judge(layer);
    INFO(layer.name, " ", layer.problem.str(), ": ", judged.chosen, " ", judged.chosen_us, " us, fastest ",
         judged.fastest, " ", judged.fastest_us);
    CHECK(judged.chosen_us <= 1.1 * judged.fastest_us);
    log_ratios += std::log(judged.chosen_us / judged.fastest_us);
  }
  CHECK(std::exp(log_ratios / static_cast<double>(layers.size())) <= 1.02);
}

TEST_CASE("conv/cuda_choice/estimates_are_near_what_was_measured") {
  const MachineRates rates = cuda_rates(multiprocessors);
  // An algorithm far from the fastest may be off by more: only what can win decides.
  constexpr double contender = 1.5;
  double squares = 0;
  int counted = 0;
  for (const Layer& layer : read_layers()) {
    double fastest = std::numeric_limits<double>::infinity();
    for (const auto& measured : layer.us) fastest = std::min(fastest, measured.second);
    for (const auto& measured : layer.us) {
      const double us = measured.second;
      const double estimate = find_conv_algorithm(DeviceKind::cuda, measured.first)->estimate_us(layer.problem, rates);
      INFO(layer.name, " ", measured.first, ": ", us, " us measured, ", estimate, " estimated");
      if (us > contender * fastest) {
        CHECK(estimate > fastest);  // must not look like a winner, though
        continue;
      }
      const double error = std::log(estimate / us);
      CHECK(std::abs(error) <= std::log(1.4));
      squares += error * error;
      ++counted;
    }
  }
  CHECK(counted >= 70);
  CHECK(std::sqrt(squares / counted) <= 0.15);
}

}  // namespace lenslet::test
