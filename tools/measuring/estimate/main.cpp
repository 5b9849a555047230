// lenslet-estimate MODEL [GPU]: a cost model asked with other constants, for tools/scripts/refit.py. It prints the
// constants that the sources have, in their struct's order (ops/conv/cuda/costs/MODEL.h). It reads lines "ALGORITHM |
// PROBLEM | CONFIG" up to an empty one, and then for each line of constants prints a line of microseconds, one of each
// configuration; nan where there is no such configuration.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <bit>
#include <cstdio>
#include <functional>
#include <iostream>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "lenslet/error.h"
#include "ops/conv/cuda/grouped_mma_plan.h"
#include "ops/conv/cuda/implicit_gemm_plan.h"
#include "ops/conv/cuda/mma_gemm_plan.h"
#include "ops/conv/cuda/wgmma_gemm_plan.h"
#include "ops/conv/cuda/wgmma_halo_split_k_plan.h"
#include "ops/conv/cuda/wgmma_tf32_plan.h"
#include "tools/measuring/parse_conv.h"
#include "tools/measuring/stated_gpus.h"

namespace lenslet::tool {
namespace {

using namespace cuda;

struct Configured {
  std::string algorithm;
  ConvProblem problem;
  std::string config;
};

/// With " float16" or " bfloat16", as ConvProblem::str() prints it.
ConvProblem read_problem(std::string text) {
  DType storage = DType::f32;
  for (const auto& [word, type] : {std::pair{" bfloat16", DType::bf16}, std::pair{" float16", DType::f16}})
    if (const std::size_t at = text.find(word); at != std::string::npos) {
      text.erase(at, std::string_view(word).size());
      storage = type;
    }
  ConvProblem problem = parse_conv(text);
  problem.storage = problem.x_storage = storage;
  return problem;
}

std::vector<Configured> read_configured() {
  std::vector<Configured> list;
  for (std::string line; std::getline(std::cin, line) && !line.empty();) {
    const std::size_t first = line.find(" | "), second = line.find(" | ", first + 1);
    if (second == std::string::npos)
      throw Error(ErrorKind::invalid_argument, line + ": not ALGORITHM | PROBLEM | CONFIG");
    list.push_back(
        {line.substr(0, first), read_problem(line.substr(first + 3, second - first - 3)), line.substr(second + 3)});
  }
  return list;
}

/// `plan` makes of a Configured what gives its microseconds out of `Costs`, a struct of doubles.
template <typename Costs, typename Plan>
void serve(const Costs& shipped, const Plan& plan) {
  using Values = std::array<double, sizeof(Costs) / sizeof(double)>;
  const auto print = [](const auto& values) {
    fmt::print("{}\n", fmt::join(values, " "));
    std::fflush(stdout);
  };
  print(std::bit_cast<Values>(shipped));
  std::vector<std::function<double(const Costs&)>> estimates;
  for (const Configured& one : read_configured()) try {
      estimates.push_back(plan(one));
    } catch (const Error&) {
      estimates.push_back([](const Costs&) { return std::numeric_limits<double>::quiet_NaN(); });
    }
  while (true) {
    Values values;
    for (double& value : values)
      if (!(std::cin >> value)) return;
    const auto costs = std::bit_cast<Costs>(values);
    std::vector<double> us;
    for (const auto& estimate : estimates) us.push_back(estimate(costs));
    print(us);
  }
}

void run(std::string_view model, const DeviceProfile& device) {
  const auto fitted = [&](const auto& shipped, const auto& read, const auto& us) {
    serve(shipped, [&](const Configured& one) {
      return [&, p = one.problem, plan = read(one.problem, one.config)](const auto& costs) {
        return us(p, plan, device, costs);
      };
    });
  };
  if (model == "wgmma_gemm") return fitted(wgmma_gemm_costs, read_wgmma_gemm_plan, wgmma_plan_us);
  if (model == "wgmma_tf32") return fitted(wgmma_tf32_costs, read_wgmma_tf32_plan, wgmma_tf32_us);
  if (model == "wgmma_halo") return fitted(wgmma_halo_costs, read_wgmma_halo_plan, wgmma_halo_us);
  if (model == "wgmma_halo_split_k") return fitted(halo_split_k_costs, read_halo_split_k_plan, halo_split_k_us);
  if (model == "grouped_tf32") {
    const auto read = [&](const ConvProblem& p, const std::string& config) {
      return read_grouped_tiling(p, config, device);
    };
    return fitted(grouped_tf32_costs, read, grouped_tf32_us);
  }
  if (model == "mma_gemm") {
    const auto read = [&](const ConvProblem& p, const std::string& config) {
      return read_mma_gemm_plan(with_merged_groups(p), config, device.clusters);
    };
    return fitted(mma_gemm_costs, read, [](const ConvProblem& p, const auto&... more) {
      return mma_gemm_us(with_merged_groups(p), more...);
    });
  }
  if (model != "implicit_gemm")
    throw Error(ErrorKind::invalid_argument, fmt::format("no cost model of this name: {}", model));
  serve(implicit_gemm_costs, [&](const Configured& one) {
    const GemmAccess access = gemm_access(one.problem, one.algorithm == model ? formats::nhwc : formats::nchw);
    const ImplicitGemmPlan plan = read_implicit_gemm_plan(one.problem, access, one.config);
    return [=, &device, p = one.problem](const ImplicitGemmCosts& costs) {
      return gemm_plan_us(p, access, plan, device, costs);
    };
  });
}

}  // namespace
}  // namespace lenslet::tool

int main(int argc, char** argv) {
  try {
    lenslet::tool::run(argc > 1 ? argv[1] : "", lenslet::tool::stated_gpu(argc > 2 ? argv[2] : "h200"));
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "lenslet-estimate: {}\n", error.what());
    return 1;
  }
}
