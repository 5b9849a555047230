#include "tools/verbs/layer_times.h"

#include <fmt/format.h>

#include <algorithm>

#include "lenslet/device.h"
#include "lenslet/error.h"
#include "tools/measuring/kernel_timer.h"
#include "tools/verbs/sparse_work.h"
#include "tools/verbs/terminal.h"

namespace lenslet::tool {

namespace {

std::string why_above(const StepInfo& step, const Floor& floor) {
  if (floor.by == "bytes") return "caches held what the floor takes from memory";
  if (step.algorithm.starts_with("winograd"))
    return "Winograd multiplies less than the direct sum, which the floor counts";
  if (step.algorithm == "fft") return "Fourier transforms multiply less than the direct sum, which the floor counts";
  return "the limit was measured at a busier moment";
}

/// Convolutions that store codes: their attributes have the multipliers of Epilogue::Requantize.
bool multiplies_int8(const StepInfo& step) {
  return std::ranges::any_of(step.attributes, [](const auto& entry) { return entry.first == "multipliers"; });
}

/// Convolutions by the CPU's kernels for bfloat16.
bool multiplies_bf16(const StepInfo& step) { return step.algorithm.starts_with("bf16_"); }

double products_per_us(const StepInfo& step, const Peak& peak) {
  return multiplies_int8(step) ? peak.int8_ops_per_us : multiplies_bf16(step) ? peak.bf16_ops_per_us : 0;
}

}  // namespace

std::optional<Peak> peak_of(const PlanInfo& plan) {
  if (plan.device == "cpu") {
    Peak peak = cpu_peak(plan.threads);
    const auto any_step = [&](const auto& is) { return std::ranges::any_of(plan.steps, is); };
    const auto tiles = [&](std::string_view algorithm) {
      return any_step([&](const StepInfo& step) {
        return std::ranges::any_of(step.candidates, [&](const StepCandidate& one) {
          return one.algorithm == algorithm && one.refusal.empty();
        });
      });
    };
    if (any_step(multiplies_int8)) peak.int8_ops_per_us = int8_peak(plan.threads, tiles("int8_amx"));
    if (any_step(multiplies_bf16)) peak.bf16_ops_per_us = bf16_peak(plan.threads, tiles("bf16_amx"));
    return peak;
  }
  if constexpr (cuda_built) {
    try {
      return cuda_timer(choose_device(plan.device).cuda_index)->peak(plan.numerics);
    } catch (const Error& error) {
      say("no floors: " + first_line(error));
    }
  }
  return {};
}

std::vector<LayerTime> time_layers(Runner& runner, std::span<const Tensor> inputs, double seconds,
                                   const std::optional<Peak>& peak) {
  const PlanInfo& plan = runner.plan();
  std::vector<std::vector<double>> us(plan.steps.size());
  std::vector<std::optional<SparseWork>> sparse(plan.steps.size());
  runner.set_observer([&](const LayerEvent& event) {
    const auto step = static_cast<std::size_t>(event.step);
    if (us[step].empty()) sparse[step] = sparse_work(event);
    us[step].push_back(1e3 * event.ms);
  });
  sample(seconds, 5, [&] {
    runner.run(inputs);
    return 0.0;
  });
  runner.set_observer({});

  std::vector<LayerTime> layers;
  for (std::size_t i = 0; i < us.size(); ++i) {
    StepInfo step = plan.steps[i];
    if (step.no_op || us[i].empty()) continue;
    if (sparse[i]) {
      step.flops = sparse[i]->flops;
      step.bytes = sparse[i]->bytes;
    }
    LayerTime& layer = layers.emplace_back(LayerTime{step, quantiles(us[i]), {}, {}, {}, static_cast<int>(i)});
    for (const BandInfo& band : plan.bands)
      if (band.first_step <= static_cast<int>(i) && static_cast<int>(i) <= band.last_step)
        layer.band = fmt::format("{} to {}, {}", plan.steps[static_cast<std::size_t>(band.first_step)].name,
                                 plan.steps[static_cast<std::size_t>(band.last_step)].name, band.reason);
    if (!peak) continue;
    layer.floor.emplace(step.flops, static_cast<double>(step.bytes), *peak, products_per_us(step, *peak));
    if (layer.percent_of_floor() > 100) layer.above = why_above(step, *layer.floor);
  }
  return layers;
}

const StepCandidate* runner_up(const StepInfo& step) {
  const StepCandidate* best = nullptr;
  const auto total = [](const StepCandidate& candidate) { return candidate.estimated_us + candidate.neighbours_us; };
  for (const StepCandidate& candidate : step.candidates)
    if (candidate.refusal.empty() && candidate.algorithm != step.algorithm &&
        (best == nullptr || total(candidate) < total(*best)))
      best = &candidate;
  return best;
}

nlohmann::ordered_json to_json(const Peak& peak) {
  nlohmann::ordered_json rates = {{"fma_gflops", peak.flops_per_us / 1e3}, {"copy_gb_per_s", peak.bytes_per_us / 1e3}};
  if (peak.int8_ops_per_us > 0) rates["int8_gops"] = peak.int8_ops_per_us / 1e3;
  if (peak.bf16_ops_per_us > 0) rates["bf16_gflops"] = peak.bf16_ops_per_us / 1e3;
  rates["how"] = peak.how;
  return rates;
}

nlohmann::ordered_json to_json(const LayerTime& layer) {
  const StepInfo& step = layer.step;
  nlohmann::ordered_json row = {{"name", step.name},
                                {"op", step.op},
                                {"algorithm", step.algorithm},
                                {"config", step.config},
                                {"reason", step.reason},
                                {"problem", step.problem},
                                {"shape", step.output_shapes.empty() ? "" : step.output_shapes[0].str()},
                                {"ms", layer.us.median / 1e3},
                                {"p10_ms", layer.us.p10 / 1e3},
                                {"p90_ms", layer.us.p90 / 1e3},
                                {"runs", layer.us.count},
                                {"flops", step.flops},
                                {"gflops", layer.gflops()},
                                {"bytes", step.bytes},
                                {"workspace_bytes", step.workspace_bytes},
                                {"estimated_ms", step.estimated_us / 1e3}};
  if (!layer.band.empty()) row["band"] = layer.band;
  if (const StepCandidate* next = runner_up(step)) {
    row["runner_up"] = next->algorithm;
    row["runner_up_estimated_ms"] = (next->estimated_us + next->neighbours_us) / 1e3;
  }
  if (layer.floor) {
    row["floor_ms"] = layer.floor->us / 1e3;
    row["floor_by"] = layer.floor->by;
    row["percent_of_floor"] = layer.percent_of_floor();
    if (!layer.above.empty()) row["above_100_because"] = layer.above;
  }
  return row;
}

}  // namespace lenslet::tool
