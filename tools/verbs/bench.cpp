// lenslet bench: how long a network takes, next to what the machine could do.

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "lenslet/model.h"
#include "lenslet/runner.h"
#include "tools/measuring/peak.h"
#include "tools/measuring/samples.h"
#include "tools/verbs/common_options.h"
#include "tools/verbs/model_inputs.h"
#include "tools/verbs/terminal.h"
#include "tools/verbs/verbs.h"

namespace lenslet::tool {

namespace {

struct Options {
  std::string model;
  std::vector<std::int64_t> batches{1};
  std::vector<std::string> shapes;
  double seconds = 1.0;
  bool per_layer = false;
  bool json = false;
  PlanOptions plan;
};

PlanOptions plan_for(const Options& options, std::int64_t batch) {
  PlanOptions plan = options.plan;
  plan.batch = batch;
  plan.input_shapes = parse_shapes(options.shapes);
  return plan;
}

struct LayerTime {
  const StepInfo* step = nullptr;
  std::vector<double> ms;
};

struct BatchResult {
  std::int64_t batch = 1;
  std::string device;
  int threads = 1;
  double flops = 0;
  Quantiles ms;         ///< of a run as its caller sees it
  Quantiles device_ms;  ///< CUDA: of the network on the device, without copies of inputs and outputs
  double first_ms = 0;  ///< planning, weight transforms and the first run
  std::vector<nlohmann::json> layers;
};

/// Milliseconds of at least 5 runs, until the time is used up.
std::vector<double> run_times(Runner& runner, std::span<const Tensor> inputs, double seconds) {
  return sample(seconds, 5, [&] {
    const Stopwatch watch;
    runner.run(inputs);
    return watch.ms();
  });
}

std::vector<nlohmann::json> layer_rows(Runner& runner, std::span<const Tensor> inputs, double seconds,
                                       const std::optional<Peak>& peak) {
  std::vector<LayerTime> layers(runner.plan().steps.size());
  runner.set_observer([&](const LayerEvent& event) {
    LayerTime& layer = layers[static_cast<std::size_t>(event.step)];
    layer.step = event.info;
    layer.ms.push_back(event.ms);
  });
  run_times(runner, inputs, seconds);
  runner.set_observer({});

  std::vector<nlohmann::json> rows;
  for (const LayerTime& layer : layers) {
    const StepInfo& step = *layer.step;
    if (step.no_op) continue;
    const Quantiles ms = quantiles(layer.ms);
    nlohmann::json row = {{"name", step.name},
                          {"op", step.op},
                          {"algorithm", step.algorithm},
                          {"shape", step.output_shapes.empty() ? "" : step.output_shapes[0].str()},
                          {"ms", ms.median},
                          {"gflops", ms.median > 0 ? step.flops / ms.median / 1e6 : 0.0}};
    if (peak) {
      const Floor floor(step.flops, static_cast<double>(step.bytes), *peak);
      row["floor_ms"] = floor.us / 1e3;
      row["floor_by"] = floor.by;
      row["percent_of_floor"] = floor.percent(1e3 * ms.median);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

// Half a second's worth, at most 200 samples.
Quantiles device_quantiles(Runner& runner) {
  const double once = runner.time_device(1).at(0);
  const int samples = static_cast<int>(std::clamp(500.0 / std::max(once, 2.0), 11.0, 200.0));
  return quantiles(runner.time_device(samples));
}

BatchResult bench_batch(const Model& model, const Options& options, std::int64_t batch,
                        const std::optional<Peak>& peak) {
  BatchResult result;
  result.batch = batch;
  const PlanOptions plan = plan_for(options, batch);
  const Stopwatch all;
  Runner runner(model, plan);
  const std::vector<Tensor> inputs = random_inputs(model, runner.plan(), 1);
  runner.run(inputs);
  result.first_ms = all.ms();
  result.device = runner.plan().device;
  result.threads = runner.plan().threads;
  for (const StepInfo& step : runner.plan().steps) result.flops += step.flops;

  runner.run(inputs);  // caches and branch predictors are warm from here on
  result.ms = quantiles(run_times(runner, inputs, options.seconds));
  if (result.device != "cpu") result.device_ms = device_quantiles(runner);
  if (options.per_layer) result.layers = layer_rows(runner, inputs, options.seconds, peak);
  return result;
}

void print_layers(const BatchResult& result) {
  const bool floors = result.device == "cpu";
  fmt::print("\nlayers at batch {}\n{:<28} {:<18} {:<18} {:>9} {:>9}", result.batch, "layer", "op", "algorithm", "ms",
             "GFLOP/s");
  if (floors) fmt::print(" {:>9} {:>6}", "floor ms", "%floor");
  fmt::print("  output\n");
  for (const nlohmann::json& row : result.layers) {
    fmt::print("{:<28} {:<18} {:<18} {:>9.4f} {:>9.1f}", row["name"].get<std::string>(), row["op"].get<std::string>(),
               row["algorithm"].get<std::string>(), row["ms"].get<double>(), row["gflops"].get<double>());
    if (floors) fmt::print(" {:>9.4f} {:>6.1f}", row["floor_ms"].get<double>(), row["percent_of_floor"].get<double>());
    fmt::print("  {}\n", row["shape"].get<std::string>());
  }
}

nlohmann::json to_json(const Quantiles& ms) { return {{"median", ms.median}, {"p10", ms.p10}, {"p90", ms.p90}}; }

double gflops(const BatchResult& result) {
  return result.flops / (result.device == "cpu" ? result.ms : result.device_ms).median / 1e6;
}

void print_cpu_table(const std::vector<BatchResult>& results, const Peak& peak) {
  fmt::print("{:>6} {:>7} {:>10} {:>10} {:>10} {:>6} {:>10} {:>8} {:>10}\n", "batch", "threads", "median ms", "p10",
             "p90", "runs", "GFLOP/s", "%peak", "first ms");
  for (const BatchResult& result : results)
    fmt::print("{:>6} {:>7} {:>10.3f} {:>10.3f} {:>10.3f} {:>6} {:>10.1f} {:>8.1f} {:>10.1f}\n", result.batch,
               result.threads, result.ms.median, result.ms.p10, result.ms.p90, result.ms.count, gflops(result),
               1e5 * gflops(result) / peak.flops_per_us, result.first_ms);
}

void print_cuda_table(const std::vector<BatchResult>& results) {
  fmt::print("device ms: the network alone; run ms: with inputs and outputs copied, as the caller waits for it\n\n");
  fmt::print("{:>6} {:>10} {:>9} {:>9} {:>10} {:>9} {:>9} {:>9} {:>9}\n", "batch", "device ms", "p10", "p90", "run ms",
             "p10", "p90", "GFLOP/s", "first ms");
  for (const BatchResult& result : results)
    fmt::print("{:>6} {:>10.4f} {:>9.4f} {:>9.4f} {:>10.4f} {:>9.4f} {:>9.4f} {:>9.0f} {:>9.1f}\n", result.batch,
               result.device_ms.median, result.device_ms.p10, result.device_ms.p90, result.ms.median, result.ms.p10,
               result.ms.p90, gflops(result), result.first_ms);
}

void bench(const Options& options) {
  const Model model = Model::load(options.model);
  std::vector<BatchResult> results;
  std::optional<Peak> peak;  // of the CPU
  for (const std::int64_t batch : options.batches) {
    if (results.empty()) {
      const PlanOptions plan = plan_for(options, batch);
      const PlanInfo info = model.plan(plan);
      print_device_note(plan);
      if (info.device == "cpu") peak = cpu_peak(info.threads);
    }
    results.push_back(bench_batch(model, options, batch, peak));
  }
  if (options.json) {
    nlohmann::json rows = nlohmann::json::array();
    for (const BatchResult& result : results) {
      nlohmann::json row = {{"batch", result.batch},   {"threads", result.threads},   {"ms", to_json(result.ms)},
                            {"runs", result.ms.count}, {"first_ms", result.first_ms}, {"gflops", gflops(result)},
                            {"layers", result.layers}};
      if (peak)
        row["percent_of_fma_peak"] = 1e5 * gflops(result) / peak->flops_per_us;
      else
        row["device_ms"] = to_json(result.device_ms);
      rows.push_back(std::move(row));
    }
    nlohmann::json document = {{"model", model.name()}, {"device", results.at(0).device}, {"results", rows}};
    if (peak)
      document["peak"] = {{"fma_gflops", peak->flops_per_us / 1e3}, {"copy_gb_per_s", peak->bytes_per_us / 1e3}};
    print_document(document);
    return;
  }
  if (peak) {
    fmt::print("{}: measured limits with {} threads: FMA {:.1f} GFLOP/s, copy {:.1f} GB/s\n\n", printable(model.name()),
               results.at(0).threads, peak->flops_per_us / 1e3, peak->bytes_per_us / 1e3);
    print_cpu_table(results, *peak);
  } else {
    fmt::print("{} on {}, {}\n", printable(model.name()), results.at(0).device, to_string(options.plan.numerics));
    print_cuda_table(results);
  }
  for (const BatchResult& result : results)
    if (!result.layers.empty()) print_layers(result);
}

}  // namespace

void add_bench(CLI::App& app, ExitCode& result) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("bench", "Time a network, whole or layer by layer, against the machine's limits");
  verb->add_option("model", options->model, "ONNX file (one called conv: ./conv)");
  verb->add_option("--batch", options->batches, "Batch sizes, separated by commas")
      ->delimiter(',')
      ->allow_extra_args(false)  // the model may follow
      ->transform(whole_number<std::int64_t>(1, max_batch))
      ->capture_default_str();
  verb->add_option("--seconds", options->seconds, "Time to spend on each measurement")
      ->check(number_up_to(3600))
      ->capture_default_str();
  verb->add_flag("--per-layer", options->per_layer, "Also time every layer");
  add_shape_option(*verb, options->shapes);
  add_plan_options(*verb, options->plan);
  add_json_option(*verb, options->json);
  add_examples(*verb,
               "lenslet bench resnet50.onnx --threads 2\n"
               "lenslet bench resnet50.onnx --batch 1,8 --per-layer\n"
               "lenslet bench resnet50.onnx --conv-algorithm im2col --json");
  add_bench_conv(*verb, result);
  verb->callback([verb, options, &result] {
    if (verb->got_subcommand("conv")) return;
    if (options->model.empty()) throw CLI::RequiredError("model");
    bench(*options);
    result = exit_ok;
  });
}

}  // namespace lenslet::tool
