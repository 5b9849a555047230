#include "tools/verbs/measured_layers.h"

#include <algorithm>
#include <cmath>

#include "lenslet/runner.h"
#include "tools/measuring/conv_in_caches.h"
#include "tools/verbs/slowness.h"
#include "tools/verbs/terminal.h"

namespace lenslet::tool {

void add_measuring_options(CLI::App& verb, MeasuringOptions& options) {
  verb.add_flag("--no-errors", options.no_errors, "Leave out the errors: double precision takes its time");
  verb.add_option("--seconds", options.seconds, "Time to spend on measuring")
      ->check(number_up_to(3600))
      ->capture_default_str();
  add_warmup_option(verb, options.warmup);
  verb.add_option("--batch", options.plan.batch, "Images at once")
      ->transform(whole_number<std::int64_t>(1, max_batch))
      ->capture_default_str();
  add_input_options(verb, options.inputs);
}

namespace {

/// Sets in_caches_us of the few convolutions that take most time.
void repeat_in_caches(std::span<LayerTime> layers, int threads, double seconds) {
  constexpr std::size_t most = 4;
  std::vector<LayerTime*> convs;
  for (LayerTime& layer : layers)
    if (layer.step.op == "Conv" && layer.floor && layer.percent_of_floor() <= 80) convs.push_back(&layer);
  if (convs.empty()) return;
  std::ranges::stable_sort(convs, std::greater(), [](const LayerTime* layer) { return layer->us.median; });
  convs.resize(std::min(convs.size(), most));
  const std::unique_ptr<KernelTimer> timer = cpu_timer(threads);
  for (LayerTime* const layer : convs)
    layer->in_caches_us =
        conv_us_in_caches(*timer, layer->step.problem, layer->step.algorithm, layer->step.config, seconds).value_or(0);
}

/// Once: the limits before and after, the layers one by one, whole runs, their timeline, and what follows from these.
void measure_times(MeasuredLayers& measured, Runner& runner, std::span<const Tensor> inputs,
                   const MeasuringOptions& options) {
  const auto measure_peak = [&] {  // other work lowers it for a moment
    const std::optional<Peak> peak = peak_of(runner.plan());
    measured.peak = measured.peak && peak ? greater(*measured.peak, *peak) : peak;
  };
  const bool on_cpu = runner.plan().device == "cpu";
  if (on_cpu || !measured.peak) measure_peak();
  std::vector<LayerTime> times = time_layers(runner, inputs, options.seconds);
  if (on_cpu) measure_peak();
  if (measured.peak) set_limits(times, *measured.peak);
  measured.run_us = quantiles(sample(options.seconds / 4, 5, [&] {
    const Stopwatch run;
    runner.run(inputs);
    return run.us();
  }));
  constexpr double slow_us = 1e5;
  measured.timeline = runner.timeline(inputs, measured.run_us->median < slow_us ? 7 : 3);
  measured.plan = runner.plan();
  measured.facts = facts_of(options.model, measured.plan, options.plan, measured.run_us->median);
  const RunFacts& facts = measured.facts;
  if (on_cpu) {
    count_threads(times, *measured.timeline);
    repeat_in_caches(times, facts.threads, options.seconds / 20);
  }
  for (LayerTime& time : times) time.time_because = time_because(time, on_cpu ? facts.threads : 1);
  advise(times, facts);
  for (LayerTime& time : times) measured.rows.push_back({std::move(time), {}});
  measured.disturbed = disturbance(measured.rows, measured.run_us, on_cpu);
}

}  // namespace

MeasuredLayers measure_layers(const MeasuringOptions& options) {
  const Model model = load_for(options.model, options.inputs.files);
  PlanOptions plan = options.plan;
  const std::vector<Tensor> given = given_inputs(model, options.inputs, plan);
  print_device_note(plan);

  MeasuredLayers measured{.model = model, .plan = {}, .batch = plan.batch};
  {
    Runner runner(model, plan);
    note_refused_algorithms(runner.plan(), plan);
    if (options.before_measuring) options.before_measuring(runner.plan());
    const std::vector<Tensor> inputs = given_or_random(model, runner.plan(), given, options.inputs);
    for (int i = 0; i < options.warmup; ++i) runner.run(inputs);
    measure_times(measured, runner, inputs, options);
    constexpr int again = 2;  // on a machine with other work, which only adds time
    for (int i = 0; i < again && !measured.disturbed.empty() && options.seconds > 0; ++i) {
      MeasuredLayers other{.model = model, .plan = {}, .batch = plan.batch, .peak = measured.peak};
      measure_times(other, runner, inputs, options);
      if (other.disturbed.empty() || sum_us(other.rows) < sum_us(measured.rows)) measured = std::move(other);
    }
  }
  if (options.no_errors) return measured;
  plan.keep_all_values = true;  // the observer reads inputs that would be overwritten otherwise
  Runner runner(model, plan);
  Progress progress(measured.rows.size(), "layers in double");
  std::size_t next = 0;  // both plans have the same steps in the same order
  runner.set_observer([&](const LayerEvent& event) {
    if (next < measured.rows.size() && measured.rows[next].time.step.name == event.info->name)
      measured.rows[next++].check = check_step(event);
    progress.update(next);
  });
  runner.run(given_or_random(model, runner.plan(), given, options.inputs));
  return measured;
}

std::vector<int> rows_of_steps(const MeasuredLayers& measured) {
  std::vector<int> rows(measured.plan.steps.size(), -1);
  for (std::size_t i = 0; i < measured.rows.size(); ++i)
    rows[static_cast<std::size_t>(measured.rows[i].time.number)] = static_cast<int>(i);
  return rows;
}

namespace {

nlohmann::ordered_json timeline_json(const MeasuredLayers& measured) {
  const Timeline& timeline = *measured.timeline;
  const std::vector<int> rows = rows_of_steps(measured);
  const auto to_ns = [](double us) { return std::round(us * 1e3) / 1e3; };
  nlohmann::ordered_json lanes = nlohmann::ordered_json::array();
  for (const std::string& name : timeline.lanes)
    lanes.push_back({{"name", name}, {"spans", nlohmann::ordered_json::array()}});
  for (const TimelineSpan& span : timeline.spans)
    lanes[static_cast<std::size_t>(span.lane)]["spans"].push_back(
        {span.step < 0 ? -1 : rows[static_cast<std::size_t>(span.step)], to_string(span.kind), to_ns(span.begin_us),
         to_ns(span.end_us)});
  return {
      {"ms", timeline.run_us / 1e3}, {"undisturbed_ms", timeline.undisturbed_us / 1e3}, {"lanes", std::move(lanes)}};
}

}  // namespace

nlohmann::ordered_json to_json(const MeasuredLayers& measured) {
  nlohmann::ordered_json document = {{"model", measured.model.name()},
                                     {"device", measured.plan.device},
                                     {"precision", to_string(measured.plan.numerics)},
                                     {"threads", measured.plan.threads},
                                     {"batch", measured.batch}};
  if (measured.run_us)
    document["run"] = {{"ms", measured.run_us->median / 1e3},
                       {"p10_ms", measured.run_us->p10 / 1e3},
                       {"p90_ms", measured.run_us->p90 / 1e3},
                       {"runs", measured.run_us->count}};
  if (measured.peak) document["peak"] = to_json(*measured.peak);
  document["layers"] = nlohmann::ordered_json::array();
  for (const LayerRow& row : measured.rows) document["layers"].push_back(to_json(row));
  if (!measured.disturbed.empty()) document["disturbed"] = measured.disturbed;
  document["advice"] = to_json(advice_on(measured.rows, measured.facts, measured.timeline));
  if (measured.timeline && measured.timeline->run_us > 0) document["timeline"] = timeline_json(measured);
  return document;
}

}  // namespace lenslet::tool
