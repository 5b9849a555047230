// Quality of the rule's choices for shapes that are rare in networks for photographs: lines, long filters, thin images,
// windows as large as the image, tiny images of many channels. The times are those of `lenslet bench conv --drawn N
// --odd --all-algorithms`, with bias and ReLU, tabulated by tools/scripts/conv_tables.py (docs/conv-choice.md). The
// table must have the chosen candidate; it lacks others far from the fastest. Needs no device.

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "ops/conv/conv.h"
#include "ops/core/choose.h"
#include "ops/gemm/gemm.h"
#include "tests/ops/measured_convs.h"

namespace lenslet::test {
namespace {

/// A table, and the allowed ratio of a choice to the fastest candidate.
struct Table {
  const char* file;
  std::size_t problems;
  double worst, mean;  ///< ratios; geometric mean
  std::size_t beyond;  ///< the number allowed above 1.3
};

/// `target_of`: device and precision of a first column.
template <typename TargetOf>
void check_choices(const Table& table, const TargetOf& target_of) {
  double log_ratios = 0;
  std::size_t problems = 0, beyond = 0;
  for (const MeasuredConv& conv : read_measured(table.file)) {
    const auto [device, numerics] = target_of(conv.by);
    const Target target{.device = device, .numerics = numerics};
    ConvProblem p = conv.problem;
    p.storage = p.x_storage = target.numerics.storage;
    const auto node = pose(p, Tensor(DType::f32, {p.k, p.group_c(), p.r, p.s}));
    const Choice choice = choose_kernel(*node, target, p.str());
    double chosen_us = 0, fastest_us = std::numeric_limits<double>::infinity();
    std::string fastest;
    for (const Choice::Row& row : choice.rows) {
      const auto at = conv.us.find(row.kernel->name());
      if (!row.refusal.empty() || at == conv.us.end()) continue;
      const double with_conversions = at->second + row.neighbours_us;
      if (row.kernel == choice.kernel) chosen_us = with_conversions;
      if (with_conversions >= fastest_us) continue;
      fastest_us = with_conversions;
      fastest = at->first;
    }
    INFO(conv.by, " ", p.str(), ": ", std::string(choice.kernel->name()), " ", chosen_us, " us, fastest ", fastest, " ",
         fastest_us);
    ++problems;
    CHECK_MESSAGE(chosen_us > 0, "chosen, and far from the fastest or not measured");
    if (chosen_us == 0) continue;
    CHECK(chosen_us <= table.worst * fastest_us);
    if (chosen_us > 1.3 * fastest_us) {
      ++beyond;
      MESSAGE(conv.by << " " << p.str() << ": " << std::string(choice.kernel->name()) << " " << chosen_us
                      << " us, fastest " << fastest << " " << fastest_us);
    }
    log_ratios += std::log(chosen_us / fastest_us);
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
    device.l2_bytes = 1 << 20;  // as in the measurements
    return std::pair(device, Numerics());
  };
  check_choices({"zen5_conv_odd.txt", 120, 1.8, 1.04, 4}, threads);
}

TEST_CASE("conv/odd_choice/long_depthwise") {
  // depthwise was estimated at 185 us but took 6450 us; direct_packed took 900.
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
  check_choices({"h100_conv_odd.txt", 270, 1.6, 1.03, 3}, [](const std::string& precision) {
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
