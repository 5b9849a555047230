// lenslet bench: a network's run time, beside the machine's limits.

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "lenslet/model.h"
#include "lenslet/runner.h"
#include "tools/measuring/samples.h"
#include "tools/verbs/common_options.h"
#include "tools/verbs/layer_table.h"
#include "tools/verbs/model_inputs.h"
#include "tools/verbs/terminal.h"
#include "tools/verbs/verbs.h"

namespace lenslet::tool {

namespace {

struct Options {
  std::vector<std::string> models;
  std::vector<std::int64_t> batches{1};
  std::vector<int> threads{0};
  InputOptions inputs;
  double seconds = 1.0;
  int warmup = default_warmup;
  bool per_layer = false;
  bool json = false;
  PlanOptions plan;
  TableOptions table;
};

struct Result {
  std::string model;
  std::int64_t batch = 1;
  std::string device;
  Numerics numerics;
  int threads = 1;
  double flops = 0;
  Quantiles ms = {};         ///< of a run as the caller sees it
  Quantiles device_ms = {};  ///< CUDA: of the network on the device, without copies of inputs and outputs
  double first_ms = 0;       ///< planning, weight transforms and the first run
  std::optional<Peak> peak = {};
  std::vector<LayerRow> layers = {};

  bool on_cpu() const { return device == "cpu"; }
  double gflops() const { return flops / (on_cpu() ? ms : device_ms).median / 1e6; }
  double percent_of_peak() const { return peak ? 1e5 * gflops() / peak->flops_per_us : 0; }
};

/// Milliseconds of at least 5 runs, until the time is used up.
std::vector<double> run_times(Runner& runner, std::span<const Tensor> inputs, double seconds) {
  return sample(seconds, 5, [&] {
    const Stopwatch watch;
    runner.run(inputs);
    return watch.ms();
  });
}

// Half a second of samples, at most 200.
Quantiles device_quantiles(Runner& runner) {
  const double once = runner.time_device(1).at(0);
  const int samples = static_cast<int>(std::clamp(500.0 / std::max(once, 2.0), 11.0, 200.0));
  return quantiles(runner.time_device(samples));
}

// Measures once for each number of threads.
class Peaks {
 public:
  const std::optional<Peak>& of(const PlanInfo& plan) {
    const auto [at, added] = peaks_.try_emplace({plan.device, plan.threads});
    if (added) at->second = peak_of(plan);
    return at->second;
  }

 private:
  std::map<std::pair<std::string, int>, std::optional<Peak>> peaks_;
};

Result bench_once(const Model& model, const PlanOptions& plan, const std::vector<Tensor>& given, const Options& options,
                  Peaks& peaks) {
  // First, because its fraction of a second of full load warms up the machine for later timings.
  const PlanInfo info = model.plan(plan);
  std::optional<Peak> peak;
  if (info.device == "cpu" || options.per_layer) peak = peaks.of(info);

  const Stopwatch all;
  Runner runner(model, plan);
  const std::vector<Tensor> inputs = given_or_random(model, runner.plan(), given, options.inputs);
  runner.run(inputs);
  Result result{.model = model.name(),
                .batch = plan.batch,
                .device = info.device,
                .numerics = info.numerics,
                .threads = info.threads,
                .first_ms = all.ms(),
                .peak = peak};
  for (const StepInfo& step : info.steps) result.flops += step.flops;
  for (int i = 1; i < options.warmup; ++i) runner.run(inputs);
  result.ms = quantiles(run_times(runner, inputs, options.seconds));
  if (!result.on_cpu()) result.device_ms = device_quantiles(runner);
  if (options.per_layer) {
    std::vector<LayerTime> times = time_layers(runner, inputs, options.seconds);
    if (peak) set_limits(times, *peak);
    for (LayerTime& time : times) result.layers.push_back({std::move(time), {}});
  }
  return result;
}

// Median, p10, p90: of the device, then of the run.
constexpr Column result_columns[] = {
    {"model", 0, Column::Kind::name},
    {"batch", 1},
    {"threads", 2},
    {"device ms", 0},
    {"device p10", 7},
    {"device p90", 6},
    {"median ms", 0},
    {"run ms", 2},
    {"p10", 5},
    {"p90", 4},
    {"runs", 8},
    {"GFLOP/s", 3},
    {"%peak", 1},
    {"first ms", 3},
};

void print_results(std::span<const Result> results, const TableOptions& options) {
  const auto ms = [](bool known, double value) { return known ? fmt::format("{:.4f}", value) : std::string(); };
  const bool cpu = results[0].on_cpu();
  if (!cpu)
    fmt::print("device ms: the network alone; run ms: with inputs and outputs copied, as the caller waits for it\n");
  TextTable table(result_columns, options);
  for (const Result& result : results)
    table.add({result.model, fmt::to_string(result.batch), cpu ? fmt::to_string(result.threads) : "",
               ms(!cpu, result.device_ms.median), ms(!cpu, result.device_ms.p10), ms(!cpu, result.device_ms.p90),
               ms(cpu, result.ms.median), ms(!cpu, result.ms.median), ms(true, result.ms.p10), ms(true, result.ms.p90),
               fmt::to_string(result.ms.count), fmt::format("{:.1f}", result.gflops()),
               cpu ? fmt::format("{:.1f}", result.percent_of_peak()) : "", fmt::format("{:.1f}", result.first_ms)});
  fmt::print("\n");
  table.print();
  if (std::ranges::any_of(results, [](const Result& result) { return result.percent_of_peak() > 110; }))
    fmt::print("%peak above 110: the machine was busy, or its clock slower, when the limits were measured\n");
}

void print_text(std::span<const Result> results, const TableOptions& options) {
  fmt::print("on {}, {}\n", results[0].device, to_string(results[0].numerics));
  std::set<int> told;
  for (const Result& result : results)
    if (result.on_cpu() && result.peak && told.insert(result.threads).second)
      fmt::print("measured limits with {} threads: FMA {:.1f} GFLOP/s, copy {:.1f} GB/s\n", result.threads,
                 result.peak->flops_per_us / 1e3, result.peak->bytes_per_us / 1e3);
  print_results(results, options);
  for (const Result& result : results) {
    if (result.layers.empty()) continue;
    fmt::print("\nlayers of {} at batch {}{}\n", printable(result.model), result.batch,
               result.on_cpu() ? fmt::format(", {} threads", result.threads) : "");
    print_table(result.layers, result.layers.size(), options);
  }
}

nlohmann::ordered_json to_json(const Quantiles& ms) {
  return {{"median", ms.median}, {"p10", ms.p10}, {"p90", ms.p90}};
}

nlohmann::ordered_json to_json(const Result& result) {
  nlohmann::ordered_json row = {{"model", result.model},       {"device", result.device},  {"batch", result.batch},
                                {"threads", result.threads},   {"ms", to_json(result.ms)}, {"runs", result.ms.count},
                                {"first_ms", result.first_ms}, {"gflops", result.gflops()}};
  if (result.peak) {
    row["percent_of_fma_peak"] = result.percent_of_peak();
    row["peak"] = to_json(*result.peak);
  }
  if (!result.on_cpu()) row["device_ms"] = to_json(result.device_ms);
  row["layers"] = nlohmann::ordered_json::array();
  for (const LayerRow& layer : result.layers) row["layers"].push_back(to_json(layer));
  return row;
}

/// Returns the code of the first model that could not run; the others were timed.
ExitCode bench(const Options& options) {
  ExitCode code = exit_ok;
  std::vector<Result> results;
  Peaks peaks;
  print_device_note(options.plan);
  for (const std::string& file : options.models)  // before anything is measured
    if (!std::ifstream(file)) throw Error(ErrorKind::io, "cannot be opened", file);
  const std::size_t runs_of_model = options.batches.size() * options.threads.size();
  Progress progress(options.models.size() * runs_of_model, "measurements");
  for (const std::string& file : options.models) {
    try {
      const Model model = load_for(file, options.inputs.files);
      PlanOptions plan = options.plan;
      const std::vector<Tensor> given = given_inputs(model, options.inputs, plan);
      for (const std::int64_t batch : options.batches)
        for (const int threads : options.threads) {
          plan.batch = batch;
          plan.threads = threads;
          progress.update(results.size());
          results.push_back(bench_once(model, plan, given, options, peaks));
        }
    } catch (const Error& error) {
      if (options.models.size() == 1) throw;
      progress.clear();
      say(error);
      if (code == exit_ok) code = exit_code(error.kind());
    }
  }
  progress.clear();
  if (options.json) {
    const Numerics numerics = results.empty() ? Numerics() : results[0].numerics;
    nlohmann::ordered_json document = {{"precision", to_string(numerics)},
                                       {"results", nlohmann::ordered_json::array()}};
    for (const Result& result : results) document["results"].push_back(to_json(result));
    print_document(std::move(document), options.plan);
  } else if (!results.empty()) {
    print_text(results, options.table);
  }
  return code;
}

}  // namespace

void add_bench(CLI::App& app, ExitCode& result) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("bench", "Time a network, whole or layer by layer, against the machine's limits");
  verb->add_option("model", options->models, "ONNX files (one called conv: ./conv)");
  verb->add_option("--batch", options->batches, "Batch sizes, separated by commas")
      ->delimiter(',')
      ->allow_extra_args(false)  // the model may follow
      ->transform(whole_number<std::int64_t>(1, max_batch))
      ->capture_default_str();
  verb->add_option("--seconds", options->seconds, "Time to spend on each measurement")
      ->check(number_up_to(3600))
      ->capture_default_str();
  add_warmup_option(*verb, options->warmup);
  verb->add_flag("--per-layer", options->per_layer, "Also time every layer; `lenslet layers` says more of each");
  add_input_options(*verb, options->inputs);
  add_plan_options(*verb, options->plan, options->threads);
  add_table_options(*verb, options->table, {result_columns, layer_columns});
  add_json_option(*verb, options->json);
  add_examples(*verb,
               "lenslet bench resnet50.onnx --threads 2\n"
               "lenslet bench resnet50.onnx mobilenetv2.onnx --batch 1,8 --threads 1,2\n"
               "lenslet bench resnet50.onnx --per-layer\n"
               "lenslet bench second.onnx --input street.bin\n"
               "lenslet bench resnet50.onnx --conv-algorithm im2col --json");
  add_bench_conv(*verb, result);
  verb->callback([verb, options, &result] {
    if (verb->got_subcommand("conv")) return;
    if (options->models.empty()) throw CLI::RequiredError("model");
    result = bench(*options);
  });
}

}  // namespace lenslet::tool
