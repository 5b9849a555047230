// lenslet-bench-winograd [R]: times tile configurations of Winograd on CUDA (chunks, tiles of the product, wide
// transforms) for R x R filters or all, and prints CSV, to which the constants in ops/conv/cuda/winograd_plan.cpp are
// fitted. Each one is a CUDA graph of many runs on the same memory. A row with * is the planner's choice;
// configurations estimated beyond 1.6 times its time are skipped.

#include <fmt/format.h>

#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ops/conv/cuda/winograd_plan.h"
#include "tools/measuring/cuda/command_line.h"
#include "tools/measuring/cuda/config_timer.h"

namespace lenslet {
namespace {

using namespace bench;
using namespace cuda;

struct Row {
  std::int64_t n, c, size, k, filter, pad;
  ConvProblem problem() const {
    return ConvRow{.n = n, .c = c, .size = size, .k = k, .filter = filter, .pad = pad}.problem();
  }
};
constexpr Row rows[] = {
    // Problems for which cuDNN transforms, too.
    {8, 128, 96, 128, 5, 0},
    {64, 128, 96, 128, 5, 0},
    {8, 128, 57, 64, 5, 0},
    {64, 128, 57, 64, 5, 0},
    {64, 128, 10, 64, 5, 0},
    {64, 128, 10, 64, 5, 2},
    // Inception's and MNIST's layers at batch 1 and more; wide and narrow ones.
    {1, 32, 28, 96, 5, 2},
    {1, 48, 35, 64, 5, 2},
    {1, 8, 14, 16, 5, 2},
    {8, 48, 35, 64, 5, 2},
    {64, 48, 35, 64, 5, 2},
    {1, 256, 28, 256, 5, 2},
    {8, 512, 14, 512, 5, 2},
    {8, 16, 112, 16, 5, 2},
    {1, 64, 56, 64, 7, 3},
    {8, 64, 56, 64, 7, 3},
    {64, 64, 56, 64, 7, 3},
    {8, 256, 14, 256, 7, 3},
    {8, 64, 224, 64, 3, 1},
    {64, 64, 56, 64, 3, 1},
    {64, 128, 28, 128, 3, 1},
    {64, 256, 14, 256, 3, 1},
    {64, 256, 56, 256, 3, 1},
};

/// With every tile of the product and several numbers of chunks.
std::vector<WinogradPlan> tilings_of(const ConvProblem& p, const WinogradPlan& planned) {
  std::vector<WinogradPlan> tilings{planned};
  std::set<std::string> seen{planned.str()};
  const auto add = [&](const WinogradPlan& plan) {
    try {
      (void)read_winograd_plan(p, plan.m, plan.str());
    } catch (const Error&) {  // too large, or no kernel
      return;
    }
    if (seen.insert(plan.str()).second) tilings.push_back(plan);
  };
  const auto chunks = (planned.count + planned.chunk - 1) / planned.chunk;
  for (const int parts : {1, 2, 4, 8, 16, 32, 64, chunks}) {
    WinogradPlan plan = planned;
    plan.chunk = (planned.count + parts - 1) / parts;
    for (const GemmTile tile : AllGemmTiles::all)
      for (const bool wide : {false, true}) {
        plan.tile = tile;
        plan.wide_input = plan.wide_output = wide;
        add(plan);
      }
  }
  return tilings;
}

void measure(const Session& session, std::string_view name, int m, const Row& row) {
  const ConvProblem p = row.problem();
  TimedConv conv(session, name, p);
  if (!conv.offered()) return;
  print_tilings(conv, name, p, tilings_of(p, plan_winograd(p, m, conv.device())),
                [&](const WinogradPlan& plan) { return estimate_winograd_us(p, plan, conv.device()); });
}

}  // namespace
}  // namespace lenslet

int main(int argc, char** argv) {
  using namespace lenslet;
  return bench::run("lenslet-bench-winograd", argc, argv, [](std::span<const std::string_view> arguments) {
    const cuda::Session session(0);
    fmt::print("{}\n", bench::tiling_columns);
    for (const Row& row : rows) {
      if (!arguments.empty() && arguments[0] != std::to_string(row.filter)) continue;
      if (row.filter == 3) measure(session, "winograd_f4", 4, row);
      if (row.filter == 5) measure(session, "winograd_f4_5x5", 4, row);
      if (row.filter == 5 && row.n * row.size < 600) measure(session, "winograd_f2_5x5", 2, row);
      if (row.filter == 7) measure(session, "winograd_f2_7x7", 2, row);
    }
  });
}
