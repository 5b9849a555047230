// lenslet-bench-fft: times tile configurations of fft on CUDA (tile sizes, chunks, tiles of the products) and prints
// CSV, to which the constants in ops/conv/cuda/fft_plan.cpp are fitted. Each one is a CUDA graph of many runs on the
// same memory. A row with * is the planner's choice; configurations estimated beyond 1.6 times its time are skipped.

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ops/conv/cuda/fft_plan.h"
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
    // Problems of docs/benchmarks.md beside cuDNN.
    {8, 128, 96, 128, 5, 0},
    {64, 128, 96, 128, 5, 0},
    {8, 128, 57, 64, 5, 0},
    {64, 128, 57, 64, 5, 0},
    {64, 128, 10, 64, 5, 0},
    {8, 32, 28, 96, 5, 2},
    {64, 32, 28, 96, 5, 2},
    {1, 48, 35, 64, 5, 2},
    {8, 64, 56, 64, 7, 3},
    {64, 64, 56, 64, 7, 3},
    // Wide and narrow ones, few tiles, larger windows.
    {64, 48, 35, 64, 5, 2},
    {1, 256, 28, 256, 5, 2},
    {8, 256, 28, 256, 5, 2},
    {64, 256, 14, 256, 5, 2},
    {8, 16, 112, 16, 5, 2},
    {32, 16, 224, 16, 7, 3},
    {8, 256, 14, 256, 7, 3},
    {16, 96, 40, 200, 9, 4},
    {32, 24, 64, 48, 9, 4},
    {1, 64, 64, 64, 11, 5},
    {8, 64, 64, 64, 11, 5},
    {64, 32, 32, 32, 11, 0},
    {16, 192, 20, 128, 11, 5},
};

/// Both tile sizes, with every tile of the products and several numbers of chunks.
std::vector<FftPlan> tilings_of(const ConvProblem& p, const FftPlan& best) {
  std::vector<FftPlan> tilings{best};
  std::set<std::string> seen{best.str()};
  for (const int size : fft_sizes) {
    if (std::max(p.r, p.s) > largest_fft_window(size)) continue;
    const FftPlan planned = plan_fft(p, size, device_profile(0));
    const auto chunks = (planned.count + planned.chunk - 1) / planned.chunk;
    for (const int parts : {1, 2, 4, 8, 16, 32, 64, chunks}) {
      FftPlan plan = planned;
      plan.chunk = (planned.count + parts - 1) / parts;
      for (std::size_t tile = 0; tile < fft_product_tiles.size(); ++tile) {
        plan.tile = static_cast<FftProductTile>(tile);
        try {
          (void)read_fft_plan(p, plan.str());
        } catch (const Error&) {  // too large
          continue;
        }
        if (seen.insert(plan.str()).second) tilings.push_back(plan);
      }
    }
  }
  return tilings;
}

}  // namespace
}  // namespace lenslet

int main(int argc, char** argv) {
  using namespace lenslet;
  return bench::run("lenslet-bench-fft", argc, argv, [](const auto&) {
    const cuda::Session session(0);
    fmt::print("{}\n", bench::tiling_columns);
    for (const Row& row : rows) {
      const ConvProblem p = row.problem();
      bench::TimedConv conv(session, "fft", p);
      if (conv.offered())
        bench::print_tilings(conv, "fft", p, tilings_of(p, cuda::plan_fft(p, conv.device())),
                             [&](const cuda::FftPlan& plan) { return cuda::estimate_fft_us(p, plan, conv.device()); });
    }
  });
}
