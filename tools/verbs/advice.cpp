#include "tools/verbs/advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "lenslet/device.h"
#include "tools/verbs/slowness.h"
#include "tools/verbs/terminal.h"

namespace lenslet::tool {

namespace {

double sum_of(std::span<const LayerTime> layers, double (*of)(const LayerTime&)) {
  return std::transform_reduce(layers.begin(), layers.end(), 0.0, std::plus(), of);
}

// Times beside estimates, of the median layer: a busy or slow machine is no fault of one layer.
double usual_ratio(std::span<const LayerTime> layers) {
  std::vector<double> ratios;
  for (const LayerTime& layer : layers)
    if (layer.step.estimated_us > 0) ratios.push_back(layer.us.p10 / layer.step.estimated_us);
  return ratios.empty() ? HUGE_VAL : quantiles(std::move(ratios)).median;
}

// The lane that waits most of a run, and how much of it.
struct Idle {
  std::string lane;
  double share = 0;
};
constexpr double worth_sharing_us = 100;  // shorter runs gain nothing
std::optional<Idle> idlest(const Timeline& timeline) {
  std::vector<double> busy(timeline.lanes.size());
  for (const TimelineSpan& span : timeline.spans)
    busy[static_cast<std::size_t>(span.lane)] += span.end_us - span.begin_us;
  const auto least = std::ranges::min_element(busy);
  if (busy.size() < 2 || timeline.run_us <= 0) return {};
  return Idle{timeline.lanes[static_cast<std::size_t>(least - busy.begin())], 1 - *least / timeline.run_us};
}

bool only_moves(std::string_view op) {
  constexpr std::string_view ops[] = {"Transpose", "Concat", "Slice", "Split",  "Gather",       "Pad",
                                      "Expand",    "Tile",   "Roll",  "Resize", "DepthToSpace", "SpaceToDepth"};
  return std::ranges::find(ops, op) != std::end(ops);
}

/// What to do about a layer that takes the share `share` of the time; empty where nothing is known.
std::string sentence(const LayerTime& layer, const RunFacts& run, double usual, double share) {
  const StepInfo& step = layer.step;
  const double as_estimated = usual * step.estimated_us, us = layer.us.p10;  // p10: other work only adds time
  if (run.on_cpu && !run.flushes_denormals && layer.denormals > 0.005 && us > 3 * as_estimated)
    return "Many of its values are denormal numbers (below 1.2e-38), which are slow: --flush-denormals takes them for "
           "zero.";
  if (step.reason == "forced") {
    const StepCandidate* const best = runner_up(step);
    const StepCandidate* const taken = chosen(step);
    return best != nullptr && taken != nullptr && total_us(*best) < total_us(*taken)
               ? fmt::format("Forced by --conv-algorithm; without it {} is likely faster.", best->algorithm)
               : std::string();
  }
  const bool moves = layer.floor && layer.floor->by == "bytes";
  if (run.on_cpu && run.float32 && step.op == "Conv" && !step.algorithm.starts_with("int8_") && us >= short_layer_us &&
      !threads_wait(layer, run.threads)) {
    const std::string int8 = fmt::format(
        "`lenslet quantize {} --photos FOLDER -o int8.onnx`. Some tens of your photos in FOLDER are enough; the "
        "command prints the error that it adds.",
        run.model);
    if (moves || !run.bf16_products)
      return fmt::format(
          "Computes in float32. int8 needs a quarter of the bytes and multiplies faster: other networks took 0.4 to "
          "0.9 of their time, here {} to {} instead of {}: {}",
          duration(0.4 * run.run_us), duration(0.9 * run.run_us), duration(run.run_us), int8);
    return fmt::format(
        "Multiplies in float32; this CPU multiplies narrower types faster: `lenslet report {} "
        "--precision fp32,bf16 -o report.html` compares; or int8: {}",
        run.model, int8);
  }
  if (run.batch == 1 && share > 0.1 && layer.weight_bytes > 0.9 * static_cast<double>(step.bytes) && moves)
    return fmt::format(
        "Reads its weights, which are almost all its bytes, for one image; a batch reads them once for "
        "all of its images: `lenslet bench {} --batch 1,8`.",
        run.model);
  if (only_moves(step.op))
    return fmt::format("Computes nothing: only a model without this {} saves its time.", step.op);
  if (layer.floor && layer.floor->us > 0.8 * us) return "Near the machine's limit: little to win in this layer alone.";
  return {};
}

}  // namespace

RunFacts facts_of(const std::string& model, const PlanInfo& plan, const PlanOptions& options, double run_us) {
  const bool on_cpu = plan.device == "cpu";
  return {.model = shell_word(model),
          .on_cpu = on_cpu,
          .float32 = plan.numerics == Numerics(),
          .bf16_products = on_cpu && has_bf16_products() && query_cpu().architecture == "AVX-512",
          .flushes_denormals = options.flush_denormals,
          .batch = options.batch,
          .run_us = run_us,
          .threads = plan.threads};
}

void advise(std::span<LayerTime> layers, const RunFacts& run) {
  const double usual = usual_ratio(layers), all = sum_of(layers, [](const LayerTime&one) { return one.us.median; });
  for (LayerTime& layer : layers)
    if (const double share = layer.us.median / all; share >= 0.01) layer.advice = sentence(layer, run, usual, share);
}

std::vector<Advice> advice_on(std::span<const LayerRow> rows, const RunFacts& run,
                              const std::optional<Timeline>& timeline) {
  std::vector<Advice> list;
  std::map<std::string, std::size_t> known;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const LayerTime& layer = rows[i].time;
    if (layer.advice.empty()) continue;
    const auto [at, is_new] = known.emplace(layer.advice, list.size());
    if (is_new) list.push_back({.text = layer.advice});
    Advice& advice = list[at->second];
    advice.layers.push_back(i);
    advice.us += layer.us.median;
    advice.lost_us += layer.lost_us();
  }
  std::ranges::stable_sort(list, std::greater(), &Advice::us);
  for (Advice& advice : list)
    std::ranges::stable_sort(advice.layers, std::greater(), [&](std::size_t i) { return rows[i].time.us.median; });
  if (const auto idle = timeline && run.on_cpu ? idlest(*timeline) : std::nullopt;
      idle && idle->share > 0.5 && timeline->run_us > worth_sharing_us)
    list.insert(list.begin(),
                {.text = fmt::format("{} waits {:.0f} % of a run: fewer threads may be as fast; compare by `lenslet "
                                     "bench {} --threads {}`.",
                                     idle->lane, 100 * idle->share, run.model,
                                     run.threads == 2 ? "1,2" : fmt::format("1,{},{}", run.threads / 2, run.threads))});
  return list;
}

nlohmann::ordered_json to_json(const std::vector<Advice>& advice) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Advice& one : advice)
    list.push_back({{"text", one.text}, {"layers", one.layers}, {"ms", one.us / 1e3}, {"lost_ms", one.lost_us / 1e3}});
  return list;
}

void print_advice(const std::vector<Advice>& advice, std::span<const LayerRow> rows, std::size_t width) {
  fmt::print("\nwhat to do{}\n", advice.empty() ? ": no rule knows" : "");
  for (const Advice& one : advice) {
    fmt::print("{}", wrapped("- " + one.text, width, 2));
    if (!one.layers.empty())
      fmt::print("{}", wrapped(fmt::format("  for {} layer{} of {}, most in {}", one.layers.size(),
                                           one.layers.size() == 1 ? "" : "s", duration(one.us),
                                           short_name(rows[one.layers[0]].time.step)),
                               width, 2));
  }
}

}  // namespace lenslet::tool
