#pragma once
// Times tile configurations of a problem, for the benches that cost models are fitted to.

#include <fmt/format.h>

#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/cuda/graph.h"
#include "base/cuda/session.h"
#include "base/cuda/upload.h"
#include "ops/conv/conv.h"
#include "ops/core/kernel.h"

namespace lenslet::bench {

/// Median time of a graph's replays in us; the first is not counted.
double replay_us(const cuda::GraphExec& graph, const cuda::Stream& stream, int replays);

/// Median time of one run in us, always on the same memory; run.cuda is the session's.
double measure_us(const cuda::Session& session, const BoundKernel& bound, KernelRun run);

/// Random values: zeros would let the device run at a higher clock.
Tensor drawn(const Shape& shape);
/// `count` values of a type on the device: a million random ones, repeated.
cuda::DeviceBuffer<std::byte> drawn_on_device(DType type, std::int64_t count);

/// A convolution by one algorithm on random values in device memory, shared by all configurations.
class TimedConv {
 public:
  TimedConv(const cuda::Session& session, std::string_view algorithm, const ConvProblem& problem,
            const Numerics& numerics = {});

  /// The algorithm's candidate; nothing if it refuses.
  const std::optional<Candidate>& offered() const { return offered_; }
  const DeviceProfile& device() const { return device_; }
  /// Median time of one run.
  double us(const std::string& config);

 private:
  const cuda::Session& session_;
  const Kernel& kernel_;
  DeviceProfile device_;
  ConvProblem p_;
  Tensor w_;
  std::unique_ptr<const Problem> problem_;
  std::optional<Candidate> offered_;
  cuda::DeviceBuffer<std::byte> x_, bias_, residual_, y_, workspace_;
  std::map<std::string, cuda::DeviceBuffer<std::byte>> blobs_;  ///< by key: configurations pack filters differently
};

/// The columns that print_cut() prints.
inline constexpr std::string_view tiling_columns = "algorithm,problem,config,us,estimated_us,plain_sums_us";
/// Most benches skip configurations whose estimate exceeds the chosen one's by this factor.
inline constexpr double hopeless = 1.6;

/// Times every configuration whose estimate is below the limit above and prints CSV. A row with * is the planner's
/// choice, cuts.front(). us_of(cut): its estimate.
template <typename Plan, typename F>
void print_tilings(TimedConv& conv, std::string_view algorithm, const ConvProblem& p, const std::vector<Plan>& tilings,
                   const F& us_of) {
  const std::string taken = tilings.front().str();
  for (const Plan& plan : tilings) {
    const double estimated_us = us_of(plan);
    if (estimated_us > hopeless * us_of(tilings.front())) continue;
    fmt::print("{}{},\"{}\",{},{:.2f},{:.2f},{:.2f}\n", plan.str() == taken ? "*" : "", algorithm, p.str(), plan.str(),
               conv.us(plan.str()), estimated_us, p.flops() / conv.device().fp32_flops_per_us);
    std::fflush(stdout);
  }
}

/// A square convolution layer of a network, with bias and ReLU.
struct ConvRow {
  std::int64_t n, c, size, k, filter, stride = 1, groups = 1;
  bool residual = false;
  std::int64_t pad = filter / 2;
  ConvProblem problem(DType storage = DType::f32) const;
};

}  // namespace lenslet::bench
