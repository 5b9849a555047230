// lenslet bench conv: convolution algorithms one by one, against what the device allows.

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "lenslet/device.h"
#include "lenslet/error.h"
#include "tools/measuring/conv_sets.h"
#include "tools/measuring/conv_timer.h"
#include "tools/verbs/bench_conv.h"
#include "tools/verbs/common_options.h"

namespace lenslet::tool {
namespace {

struct Options {
  std::vector<std::string> problems, sets;
  std::vector<std::int64_t> batches{1};
  std::string device = "auto", precision = "fp32";
  int threads = 0;
  double seconds = 0.1;
  bool all_algorithms = false, plain = false, json = false;
};

struct Row {
  std::string algorithm;
  bool chosen = false;
  std::string refusal;  ///< or why it failed
  double estimated_us = 0, tolerance = 0;
  ConvTime time;
};

struct Result {
  NamedConv conv;
  double floor_us = 0;
  bool by_bytes = false;
  std::vector<Row> rows;
};

std::vector<NamedConv> problems_of(const Options& options) {
  std::vector<NamedConv> list;
  for (const std::string& text : options.problems) list.push_back(parse_conv(text));
  for (const std::string& set : options.sets) {
    auto layers = conv_set(set, options.batches);
    std::ranges::move(layers, std::back_inserter(list));
  }
  if (list.empty()) throw Error(ErrorKind::invalid_argument, "bench conv: name problems (--problem) or sets (--set)");
  if (!options.plain)
    for (NamedConv& conv : list) {
      conv.problem.bias = true;
      conv.problem.activation.kind = Activation::Kind::relu;
    }
  return list;
}

std::unique_ptr<ConvTimer> timer_of(const Options& options) {
  const DeviceChoice device = choose_device(options.device);
  print_device_note(device.note);
  if constexpr (cuda_built) {
    if (device.is_cuda()) return cuda_conv_timer(device.cuda_index, options.precision == "tf32");
  }
  return cpu_conv_timer(options.threads > 0 ? options.threads : query_devices().devices.at(0).cores);
}

Result measure(ConvTimer& timer, const NamedConv& conv, const DevicePeak& peak, const Options& options) {
  const ConvProblem& problem = conv.problem;
  const double compute = problem.flops() / peak.flops_per_us, move = problem.bytes() / peak.bytes_per_us;
  Result result{conv, std::max(compute, move), move > compute, {}};
  const ConvOperands operands(problem);
  const ConvReference reference(problem, operands);
  const ConvChoice choice = choose_conv(problem, timer.device(), timer.rates());
  for (const ConvCandidateRow& candidate : choice.candidates) {
    Row row;
    row.algorithm = candidate.algorithm->name();
    row.chosen = candidate.algorithm == choice.algorithm;
    if (!row.chosen && !options.all_algorithms) continue;
    row.refusal = candidate.refusal;
    if (row.refusal.empty()) {
      row.estimated_us = candidate.estimated_us;
      row.tolerance = candidate.algorithm->tolerance(problem);
      row.time = timer.time(*candidate.algorithm, problem, operands, reference, options.seconds);
    }
    result.rows.push_back(std::move(row));
  }
  return result;
}

void print_head(const DevicePeak& peak, bool all) {
  fmt::print("ceilings measured now ({}): {:.2f} TFLOP/s, {:.0f} GB/s\n", peak.how, peak.flops_per_us / 1e6,
             peak.bytes_per_us / 1e3);
  fmt::print("the same buffers each time, so that what fits the caches is found there; %floor can then exceed 100\n");
  fmt::print("error: largest of up to 2048 drawn outputs against sums in double, by their rms, over what is allowed\n");
  if (all) fmt::print("*: what the rule chooses\n");
  fmt::print("\n{:<24} {:<28} {:<20} {:>10} {:>9} {:>9} {:>9} {:>6} {:>8} {:>10} {:>9} {:>6}\n", "layer", "problem",
             "algorithm", "median us", "p10", "p90", "floor us", "by", "%floor", "estimate", "error", "of tol");
}

void print(const Result& result) {
  const ConvProblem& p = result.conv.problem;
  const std::string shape = fmt::format("{}x{}x{}x{} {} {}x{}s{}{}", p.n, p.c, p.h, p.w, p.k, p.r, p.s, p.stride_h,
                                        p.groups > 1 ? fmt::format("g{}", p.groups) : "");
  for (const Row& row : result.rows) {
    const std::string name = row.algorithm + (row.chosen ? " *" : "");
    if (!row.refusal.empty()) {
      fmt::print("{:<24} {:<28} {:<20} refused: {}\n", result.conv.name, shape, name, row.refusal);
      continue;
    }
    fmt::print("{:<24} {:<28} {:<20} {:>10.2f} {:>9.2f} {:>9.2f} {:>9.2f} {:>6} {:>8.1f} {:>10.2f} {:>9.1e} {:>6.2f}\n",
               result.conv.name, shape, name, row.time.median_us, row.time.p10_us, row.time.p90_us, result.floor_us,
               result.by_bytes ? "bytes" : "flops", 100 * result.floor_us / row.time.median_us, row.estimated_us,
               row.time.error, row.time.error / row.tolerance);
  }
  std::fflush(stdout);
}

nlohmann::json to_json(const Result& result) {
  const ConvProblem& p = result.conv.problem;
  nlohmann::json rows = nlohmann::json::array();
  for (const Row& row : result.rows) {
    nlohmann::json entry = {{"algorithm", row.algorithm}, {"chosen", row.chosen}};
    if (!row.refusal.empty())
      entry["refused"] = row.refusal;
    else
      entry.update({{"us", row.time.median_us},
                    {"p10_us", row.time.p10_us},
                    {"p90_us", row.time.p90_us},
                    {"samples", row.time.samples},
                    {"percent_of_floor", 100 * result.floor_us / row.time.median_us},
                    {"estimated_us", row.estimated_us},
                    {"error", row.time.error},
                    {"tolerance", row.tolerance}});
    rows.push_back(std::move(entry));
  }
  return {{"name", result.conv.name},
          {"problem", p.str()},
          {"n", p.n},
          {"flops", p.flops()},
          {"bytes", p.bytes()},
          {"floor_us", result.floor_us},
          {"floor_by", result.by_bytes ? "bytes" : "flops"},
          {"algorithms", std::move(rows)}};
}

/// False when a result was further from the reference than its algorithm states.
bool bench_conv(const Options& options) {
  for (const std::int64_t batch : options.batches)
    if (batch < 1) throw Error(ErrorKind::invalid_argument, fmt::format("--batch {}: at least 1", batch));
  const std::vector<NamedConv> problems = problems_of(options);
  const std::unique_ptr<ConvTimer> timer = timer_of(options);
  const DevicePeak peak = timer->peak();
  nlohmann::json list = nlohmann::json::array();
  if (!options.json) print_head(peak, options.all_algorithms);
  bool right = true;
  for (const NamedConv& conv : problems) {
    const Result result = measure(*timer, conv, peak, options);
    // Tolerances are stated for fp32.
    if (options.precision == "fp32")
      for (const Row& row : result.rows) right = right && (!row.refusal.empty() || row.time.error <= row.tolerance);
    if (options.json)
      list.push_back(to_json(result));
    else
      print(result);
  }
  if (options.json)
    fmt::print(
        "{}\n",
        nlohmann::json{
            {"device", timer->device() == DeviceKind::cuda ? "cuda" : "cpu"},
            {"precision", options.precision},
            {"epilogue", options.plain ? "none" : "bias, relu"},
            {"peak", {{"gflops", peak.flops_per_us / 1e3}, {"gb_per_s", peak.bytes_per_us / 1e3}, {"how", peak.how}}},
            {"problems", std::move(list)}}
            .dump(2));
  return right;
}

}  // namespace

void add_bench_conv(CLI::App& bench, ExitCode& result) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = bench.add_subcommand("conv", "Time convolution algorithms one by one");
  verb->add_option("--problem", options->problems, "N,C,H,W,K,R,S[,stride[,pad[,dilation[,groups]]]]; may be repeated")
      ->type_name("NUMBERS")
      ->expected(1, -1);
  verb->add_option("--set", options->sets, "Layers of networks, separated by commas")
      ->delimiter(',')
      ->check(CLI::IsMember(conv_set_names()));
  verb->add_option("--batch", options->batches, "Batch sizes of --set, separated by commas")
      ->delimiter(',')
      ->capture_default_str();
  verb->add_flag("--all-algorithms", options->all_algorithms, "Not only what the rule chooses; refusals with reasons");
  verb->add_flag("--plain", options->plain, "Without bias and ReLU");
  verb->add_option("--device", options->device, "auto, cpu, cuda or cuda:INDEX")->capture_default_str();
  verb->add_option("--precision", options->precision, "Of products that cuBLAS does")
      ->check(CLI::IsMember({"fp32", "tf32"}))
      ->capture_default_str();
  verb->add_option("--threads", options->threads, "CPU threads; 0: all cores")->check(CLI::Range(0, 1024));
  verb->add_option("--seconds", options->seconds, "Time to spend on each measurement")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  add_json_option(*verb, options->json);
  add_examples(*verb,
               "lenslet bench conv --problem 1,64,56,56,64,3,3,1,1 --all-algorithms\n"
               "lenslet bench conv --set resnet50 --batch 1,8 --device cuda");
  verb->callback([options, &result] { result = bench_conv(*options) ? exit_ok : exit_failed; });
}

}  // namespace lenslet::tool
