#include "tools/verbs/layer_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lenslet/device.h"
#include "lenslet/error.h"
#include "tools/measuring/kernel_timer.h"
#include "tools/verbs/sparse_work.h"
#include "tools/verbs/terminal.h"

namespace lenslet::tool {

namespace {

std::string why_above(const StepInfo& step, const Floor& floor) {
  if (floor.by == "bytes") return "caches held what the limit takes from memory";
  if (step.algorithm.starts_with("winograd"))
    return "Winograd multiplies less than the direct sum, which the limit counts";
  if (step.algorithm == "fft") return "Fourier transforms multiply less than the direct sum, which the limit counts";
  return std::string(limit_was_low);
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

// What the first run of a step shows.
struct Once {
  std::optional<SparseWork> sparse;
  double denormals = 0, moved_bytes = 0;  ///< moved: of activations
};

Once seen_once(const LayerEvent& event, const PlanInfo& plan) {
  Once seen{.sparse = sparse_work(event)};
  if (plan.device != "cpu") return seen;
  std::size_t values = 0, denormal = 0;
  const auto see = [&](const Tensor& tensor) {
    seen.moved_bytes += static_cast<double>(tensor.bytes());
    if (tensor.empty() || tensor.dtype() != DType::f32) return;
    const std::span<const float> all = tensor.values<float>();
    values += all.size();
    denormal += static_cast<std::size_t>(
        std::ranges::count_if(all, [](float value) { return std::fpclassify(value) == FP_SUBNORMAL; }));
  };
  const auto computed = [&](const std::string& name) {
    return std::ranges::any_of(plan.inputs, [&](const auto& input) { return input.first == name; }) ||
           std::ranges::any_of(plan.steps, [&](const StepInfo& step) {
             return std::ranges::find(step.outputs, name) != step.outputs.end();
           });
  };
  for (std::size_t i = 0; i < event.inputs.size() && i < event.info->inputs.size(); ++i)
    if (computed(event.info->inputs[i])) see(event.inputs[i]);
  for (const Tensor& output : event.outputs) see(output);
  if (values > 0) seen.denormals = static_cast<double>(denormal) / static_cast<double>(values);
  return seen;
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
      say("no limits: " + first_line(error));
    }
  }
  return {};
}

std::vector<LayerTime> time_layers(Runner& runner, std::span<const Tensor> inputs, double seconds) {
  const PlanInfo& plan = runner.plan();
  std::vector<std::vector<double>> us(plan.steps.size());
  std::vector<Once> once(plan.steps.size());
  runner.set_observer([&](const LayerEvent& event) {
    const auto step = static_cast<std::size_t>(event.step);
    if (step >= us.size()) {  // planned in this run: without one before, the plan did not have it
      us.resize(step + 1);
      once.resize(step + 1);
    }
    if (us[step].empty()) once[step] = seen_once(event, plan);
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
    if (const auto& sparse = once[i].sparse) {
      step.flops = sparse->flops;
      step.bytes = sparse->bytes;
    }
    LayerTime& layer =
        layers.emplace_back(LayerTime{.step = step, .us = quantiles(us[i]), .number = static_cast<int>(i)});
    layer.denormals = once[i].denormals;
    if (plan.device == "cpu") layer.weight_bytes = std::max(0.0, static_cast<double>(step.bytes) - once[i].moved_bytes);
    for (const BandInfo& band : plan.bands)
      if (band.first_step <= static_cast<int>(i) && static_cast<int>(i) <= band.last_step)
        layer.band = fmt::format("{} to {}, {}", plan.steps[static_cast<std::size_t>(band.first_step)].name,
                                 plan.steps[static_cast<std::size_t>(band.last_step)].name, band.reason);
  }
  return layers;
}

void set_limits(std::span<LayerTime> layers, const Peak& peak) {
  for (LayerTime& layer : layers) {
    const StepInfo& step = layer.step;
    layer.floor.emplace(step.flops, static_cast<double>(step.bytes), peak, products_per_us(step, peak));
    if (layer.percent_of_floor() > 100) layer.above = why_above(step, *layer.floor);
  }
}

const StepCandidate* runner_up(const StepInfo& step) {
  const StepCandidate* best = nullptr;
  for (const StepCandidate& candidate : step.candidates)
    if (candidate.refusal.empty() && candidate.algorithm != step.algorithm &&
        (best == nullptr || total_us(candidate) < total_us(*best)))
      best = &candidate;
  return best;
}

const StepCandidate* chosen(const StepInfo& step) {
  const auto found = std::ranges::find(step.candidates, step.algorithm, &StepCandidate::algorithm);
  return found == step.candidates.end() ? nullptr : &*found;
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
    row["runner_up_estimated_ms"] = total_us(*next) / 1e3;
    if (const StepCandidate* one = chosen(step)) row["chosen_estimated_ms"] = total_us(*one) / 1e3;
  }
  if (layer.floor) {
    row["floor_ms"] = layer.floor->us / 1e3;
    row["floor_by"] = layer.floor->by;
    row["percent_of_floor"] = layer.percent_of_floor();
    if (!layer.above.empty()) row["above_100_because"] = layer.above;
  }
  if (layer.threads_at_work > 0) row["threads_at_work"] = layer.threads_at_work;
  if (layer.in_band_us > 0) row["in_band_ms"] = layer.in_band_us / 1e3;
  if (layer.in_caches_us > 0) row["in_caches_ms"] = layer.in_caches_us / 1e3;
  if (!layer.time_because.empty()) row["time_because"] = layer.time_because;
  if (!layer.advice.empty()) row["advice"] = layer.advice;
  return row;
}

}  // namespace lenslet::tool
