// How well the rule chooses for shapes that networks of photographs have not: lines, long filters, thin images, windows
// as large as the image, tiny images of many channels. Against times of `lenslet bench conv --drawn N --odd
// --all-algorithms`, with bias and ReLU, that tools/scripts/refit_conv.py made tables of (docs/conv-choice.md). What is
// chosen has to be in the table; of the others those far from the fastest are not. No device needed.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/cuda_built.h"
#include "ops/conv/conv.h"
#include "ops/core/choose.h"
#include "ops/gemm/gemm.h"

namespace lenslet::test {
namespace {

/// A table, and how far what is chosen may be from the fastest in it.
struct Table {
  const char* file;
  std::size_t problems;
  double worst, mean;  ///< ratios; geometric mean
  std::size_t beyond;  ///< so many may be above 1.3
};

struct Times {
  ConvProblem problem;
  std::map<std::string, double, std::less<>> us;  ///< of an algorithm, without conversions of formats
};

/// By what a table's first column says, in its order.
std::map<std::string, std::vector<Times>> read(const Table& table) {
  std::ifstream file(std::string(LENSLET_SOURCE_DIR "/tests/ops/data/") + table.file);
  REQUIRE(file);
  std::string line;
  std::getline(file, line);
  REQUIRE(line.substr(line.find(',')) ==
          ",n,c,h,w,k,r,s,stride_h,stride_w,pad_h,pad_w,dilation_h,dilation_w,groups,algorithm,us");
  std::map<std::string, std::vector<Times>> all;
  while (std::getline(file, line)) {
    CAPTURE(line);
    std::replace(line.begin(), line.end(), ',', ' ');
    std::istringstream fields(line);
    std::string by, algorithm;
    std::int64_t n = 0, c = 0, h = 0, w = 0, k = 0, r = 0, s = 0, pad_h = 0, pad_w = 0;
    ConvGeometry geometry;
    double us = 0;
    fields >> by >> n >> c >> h >> w >> k >> r >> s >> geometry.stride[0] >> geometry.stride[1] >> pad_h >> pad_w >>
        geometry.dilation[0] >> geometry.dilation[1] >> geometry.groups >> algorithm >> us;
    REQUIRE(fields);
    geometry.pads = {pad_h, pad_w, pad_h, pad_w};
    ConvProblem p = resolve_conv({n, c, h, w}, {k, c / geometry.groups, r, s}, geometry);
    p.bias = true;
    p.activation.kind = Activation::Kind::relu;
    std::vector<Times>& of = all[by];
    if (of.empty() || !(of.back().problem == p)) of.push_back({p, {}});
    of.back().us[algorithm] = us;
  }
  return all;
}

/// `target_of`: device and arithmetic of a first column.
template <typename TargetOf>
void check_choices(const Table& table, const TargetOf& target_of) {
  double log_ratios = 0;
  std::size_t problems = 0, beyond = 0;
  for (const auto& entry : read(table)) {
    const auto& by = entry.first;  // no structured binding: clang 14 does not capture those
    const auto& list = entry.second;
    const auto [device, numerics] = target_of(by);
    const Target target{.device = device, .numerics = numerics};
    for (const auto& [problem, us] : list) {
      ConvProblem p = problem;
      p.storage = p.x_storage = target.numerics.storage;
      const auto node = pose(p, Tensor(DType::f32, {p.k, p.group_c(), p.r, p.s}));
      const Choice choice = choose_kernel(*node, target, p.str());
      double chosen_us = 0, fastest_us = std::numeric_limits<double>::infinity();
      std::string fastest;
      for (const Choice::Row& row : choice.rows) {
        const auto at = us.find(row.kernel->name());
        if (!row.refusal.empty() || at == us.end()) continue;
        const double with_conversions = at->second + row.neighbours_us;
        if (row.kernel == choice.kernel) chosen_us = with_conversions;
        if (with_conversions >= fastest_us) continue;
        fastest_us = with_conversions;
        fastest = at->first;
      }
      INFO(by, " ", p.str(), ": ", std::string(choice.kernel->name()), " ", chosen_us, " us, fastest ", fastest, " ",
           fastest_us);
      ++problems;
      CHECK_MESSAGE(chosen_us > 0, "chosen, and far from the fastest or not measured");
      if (chosen_us == 0) continue;
      CHECK(chosen_us <= table.worst * fastest_us);
      if (chosen_us > 1.3 * fastest_us) {
        ++beyond;
        MESSAGE(by << " " << p.str() << ": " << std::string(choice.kernel->name()) << " " << chosen_us
                   << " us, fastest " << fastest << " " << fastest_us);
      }
      log_ratios += std::log(chosen_us / fastest_us);
    }
  }
  CHECK(problems == table.problems);
  CHECK(beyond <= table.beyond);
  CHECK(std::exp(log_ratios / static_cast<double>(problems)) <= table.mean);
}

}  // namespace

TEST_CASE("conv/odd_choice/cpu") {
  if (gemm_tile_cols() != 32) {
    MESSAGE("skipped: the tables are of vectors of 16 floats");
    return;
  }
  const auto threads = [](const std::string& text) {
    DeviceProfile device = cpu_profile(std::stoi(text));
    device.l2_bytes = 1 << 20;  // as it was measured there
    return std::pair(device, Numerics());
  };
  check_choices({"zen5_conv_odd.csv", 120, 1.8, 1.04, 4}, threads);
}

TEST_CASE("conv/odd_choice/long_depthwise") {
  // It took 6450 us by depthwise, which estimated 185, where direct_packed took 900.
  ConvGeometry geometry;
  geometry.stride = {1, 2};
  const ConvProblem p = resolve_conv({1, 1, 1, 16000}, {1, 1, 1, 256}, geometry);
  const auto node = pose(p, Tensor(DType::f32, {1, 1, 1, 256}));
  for (const int threads : {1, 2}) {
    const Choice choice = choose_kernel(*node, {cpu_profile(threads), {}}, p.str());
    if (gemm_tile_cols() > 2) CHECK(choice.kernel->name() == "direct_rows");  // vectors of several lanes
    std::map<std::string, double, std::less<>> us;
    for (const Choice::Row& row : choice.rows)
      if (row.refusal.empty()) us[std::string(row.kernel->name())] = row.total_us();
    if (gemm_tile_cols() == 32) CHECK(us["depthwise"] > us["direct_packed"]);
  }
}

TEST_CASE("conv/odd_choice/cuda") {
  if constexpr (!cuda_built) {
    MESSAGE("skipped: a build without CUDA");
    return;
  }
  check_choices({"h100_conv_odd.csv", 270, 1.6, 1.03, 3}, [](const std::string& precision) {
    DeviceProfile h100 = reference_gpu();
    h100.cublas_reason.clear();
    h100.tf32_flops_per_us = 381.4e6;
    h100.half_flops_per_us = 762.8e6;
    h100.bytes_per_us = 2.933e6;
    h100.cluster_units = {0, 0, 132, 117, 120, 110, 102, 105, 120};
    return std::pair(h100, parse_numerics(precision));
  });
}

}  // namespace lenslet::test
