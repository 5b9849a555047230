// lenslet bench conv: single convolution algorithms, beside the device's limits.

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>

#include "lenslet/device.h"
#include "lenslet/error.h"
#include "tools/measuring/conv_data.h"
#include "tools/measuring/conv_sets.h"
#include "tools/measuring/kernel_timer.h"
#include "tools/measuring/stated_gpus.h"
#include "tools/verbs/common_options.h"
#include "tools/verbs/text_table.h"
#include "tools/verbs/verbs.h"

namespace lenslet::tool {
namespace {

struct Options {
  std::vector<std::string> problems, sets, algorithms;
  std::vector<std::int64_t> batches{1};
  std::optional<std::string> config, profile;
  PlanOptions plan;
  TableOptions table;
  double seconds = 0.1;
  int drawn = 0;
  std::uint64_t seed = 1;
  bool odd = false, all_algorithms = false, plain = false, same_buffers = false, plans = false, configs = false,
       json = false;
};

Numerics numerics_of(const Options& options) { return options.plan.numerics.value_or(Numerics()); }

struct Row {
  std::string algorithm, config;
  bool chosen = false;
  std::string refusal;
  std::optional<double> estimated_us;  ///< by the kernel; none for configurations that it does not offer
  double tolerance = 0, error = 0;
  Quantiles us;
};

struct Result {
  NamedConv conv;
  Floor floor;
  std::vector<Row> rows;
};

void check(const Options& options) {
  if (options.problems.empty() && options.sets.empty() && options.drawn == 0)
    throw Error(ErrorKind::invalid_argument,
                "bench conv: name problems (--problem), sets (--set) or draw some (--drawn)");
  if (options.config && options.algorithms.size() != 1)
    throw Error(ErrorKind::invalid_argument, "--config is for one --algorithm");
}

std::vector<NamedConv> problems_of(const Options& options) {
  std::vector<NamedConv> list;
  for (const std::string& text : options.problems)
    list.push_back({text, parse_conv(text), text.find("->") != std::string::npos});
  for (const std::string& set : options.sets)
    std::ranges::move(conv_set(set, options.batches), std::back_inserter(list));
  std::ranges::move(drawn_convs(options.drawn, options.seed, options.odd ? Shapes::odd : Shapes::usual),
                    std::back_inserter(list));
  for (NamedConv& conv : list) conv.problem.storage = conv.problem.x_storage = numerics_of(options).storage;
  if (!options.plain)
    for (NamedConv& conv : list) {
      if (conv.with_epilogue) continue;
      conv.problem.bias = true;
      conv.problem.activation.kind = Activation::Kind::relu;
    }
  return list;
}

std::unique_ptr<KernelTimer> timer_of(const Options& options) {
  const DeviceChoice device = print_device_note(options.plan);
  if constexpr (cuda_built) {
    if (device.is_cuda())
      return cuda_timer(device.cuda_index, options.same_buffers ? Buffers::same : Buffers::rotating);
  }
  return cpu_timer(options.plan.threads > 0 ? options.plan.threads : query_devices().devices.at(0).cores);
}

bool is_wanted(std::string_view algorithm, bool chosen, const Options& options) {
  if (options.all_algorithms || (options.plans && options.algorithms.empty())) return true;
  if (options.algorithms.empty()) return chosen;
  return std::ranges::find(options.algorithms, algorithm) != options.algorithms.end();
}

void measure(KernelTimer& timer, const PosedConv& conv, const ConvReference& reference, const Kernel& kernel,
             Candidate candidate, const Options& options, Row& row) {
  row.estimated_us = candidate.estimated_us;
  if (options.config && *options.config != candidate.config) {
    candidate.config = *options.config;
    row.estimated_us.reset();
    row.chosen = false;
  }
  row.config = candidate.config;
  row.tolerance = candidate.tolerance;
  const Measured measured = timer.measure(kernel, *conv.node, candidate, conv.inputs, options.seconds);
  row.us = measured.us;
  row.error = reference.error(measured.outputs[0]);
}

Result measure(KernelTimer& timer, const NamedConv& named, const Peak& peak, const Options& options) {
  Result result{named, Floor(named.problem.flops(), named.problem.bytes(), peak), {}};
  const PosedConv conv(named.problem);
  const ConvReference reference(conv);
  const Target target{timer.device(), numerics_of(options)};
  const Choice choice = choose_kernel(*conv.node, target, named.problem.str());
  for (const Choice::Row& asked : choice.rows) {
    Row row;
    row.algorithm = asked.kernel->name();
    row.chosen = asked.kernel == choice.kernel;
    row.refusal = asked.refusal;
    if (!is_wanted(row.algorithm, row.chosen, options)) continue;
    if (row.refusal.empty()) measure(timer, conv, reference, *asked.kernel, asked.candidate, options, row);
    result.rows.push_back(std::move(row));
  }
  return result;
}

void print_head(const Peak& peak, const Options& options, DeviceKind device) {
  fmt::print("ceilings measured now ({}): {:.2f} TFLOP/s, {:.0f} GB/s\n", peak.how, peak.flops_per_us / 1e6,
             peak.bytes_per_us / 1e3);
  if (device == DeviceKind::cpu || options.same_buffers)
    fmt::print("the same buffers each time: what fits the caches is found there, and %limit can exceed 100\n");
  else
    fmt::print("many buffers in turn, together larger than L2 (--same-buffers: always the same)\n");
  fmt::print("error: largest of up to 2048 drawn outputs against sums in double, by their rms, over what is allowed\n");
  if (options.all_algorithms || !options.algorithms.empty()) fmt::print("*: what the rule chooses\n");
  fmt::print("\n");
}

using enum Column::Kind;
// Printed problem by problem: the widths are known before.
constexpr Column measured_columns[] = {
    {"layer", 8, name},       {"problem", 1, text, 0, 27}, {"algorithm", 0, name, 22}, {"median us", 0, number, 9},
    {"p10", 11, number, 8},   {"p90", 10, number, 8},      {"limit us", 6, number, 8}, {"by", 9, word, 5},
    {"%limit", 1, number, 6}, {"estimate", 4, number, 8},  {"error", 7, number, 7},    {"of tol", 3, number, 6},
    {"config", 5, text, 40},
};
constexpr Column planned_columns[] = {{"layer", 6, name},     {"problem", 1, text, 0, 32},
                                      {"algorithm", 0, name}, {"estimate us", 0},
                                      {"limit us", 3},        {"by", 5, word},
                                      {"tolerance", 4},       {"config", 2, text}};

// Empty for a problem given as text.
std::string title_of(const NamedConv& conv) { return conv.name == conv.problem.str() ? "" : conv.name; }

// Wide enough for all problems.
std::vector<Column> measured_columns_for(std::span<const NamedConv> problems) {
  std::vector<Column> columns(std::begin(measured_columns), std::end(measured_columns));
  for (const NamedConv& conv : problems) {
    columns[0].width = std::max(columns[0].width, columns_of(title_of(conv)));
    columns[1].width = std::max(columns[1].width, columns_of(conv.problem.str()));
  }
  return columns;
}

void print(const Result& result, TextTable& table) {
  for (const Row& row : result.rows) {
    std::vector<std::string> cells{title_of(result.conv), result.conv.problem.str(),
                                   row.algorithm + (row.chosen ? " *" : "")};
    const auto add = [&](double value) { cells.push_back(fmt::format("{:.2f}", value)); };
    if (row.refusal.empty()) {
      for (const double us : {row.us.median, row.us.p10, row.us.p90, result.floor.us}) add(us);
      cells.emplace_back(result.floor.by);
      cells.push_back(fmt::format("{:.1f}", result.floor.percent(row.us.median)));
      cells.push_back(row.estimated_us ? fmt::format("{:.2f}", *row.estimated_us) : "-");
      cells.push_back(fmt::format("{:.1e}", row.error));
      add(row.error / row.tolerance);
      cells.push_back(row.config);
    } else {
      cells.push_back("refused: " + row.refusal);
    }
    table.add(std::move(cells));
  }
  fmt::print("{}", table.take());
  if (std::fflush(stdout) != 0) throw std::system_error(errno, std::generic_category());  // the rest takes long
}

nlohmann::json to_json(const Result& result) {
  const ConvProblem& p = result.conv.problem;
  nlohmann::json rows = nlohmann::json::array();
  for (const Row& row : result.rows) {
    nlohmann::json entry = {{"algorithm", row.algorithm}, {"chosen", row.chosen}};
    if (!row.refusal.empty()) {
      entry["refused"] = row.refusal;
    } else {
      entry.update({{"config", row.config},
                    {"us", row.us.median},
                    {"least_us", row.us.least},
                    {"p10_us", row.us.p10},
                    {"p90_us", row.us.p90},
                    {"samples", row.us.count},
                    {"percent_of_floor", result.floor.percent(row.us.median)},
                    {"error", row.error},
                    {"tolerance", row.tolerance}});
      if (row.estimated_us) entry["estimated_us"] = *row.estimated_us;
    }
    rows.push_back(std::move(entry));
  }
  return {{"name", result.conv.name},    {"problem", p.str()},           {"n", p.n},
          {"flops", p.flops()},          {"bytes", p.bytes()},           {"floor_us", result.floor.us},
          {"floor_by", result.floor.by}, {"algorithms", std::move(rows)}};
}

/// The candidates of each algorithm, unmeasured: estimates with all digits, in JSON one line for each problem.
void print_plans(const std::vector<NamedConv>& problems, const DeviceProfile& device, const Options& options) {
  const Peak peak{device.flops_per_us(numerics_of(options).multiply), device.bytes_per_us, "profile"};
  if (!options.json)
    fmt::print(
        "{} in {}, not measured: {:.1f} TFLOP/s, {:.0f} GB/s by its profile\n*: what the rule chooses, by the estimate "
        "and the conversions beside it\n\n",
        device.name, to_string(numerics_of(options)), peak.flops_per_us / 1e6, peak.bytes_per_us / 1e3);
  TextTable table(planned_columns, options.table);
  for (const NamedConv& conv : problems) {
    const std::string shape = conv.problem.str();
    const auto node = pose_unread(conv.problem);
    const Target target{device, numerics_of(options)};
    const Choice choice = choose_kernel(*node, target, shape);
    const Floor floor(conv.problem.flops(), conv.problem.bytes(), peak);
    nlohmann::ordered_json rows = nlohmann::json::array();
    for (const Choice::Row& asked : choice.rows) {
      if (!is_wanted(asked.kernel->name(), asked.kernel == choice.kernel, options)) continue;
      std::vector<Candidate> listed{asked.candidate};
      if (options.configs && asked.refusal.empty()) listed = asked.kernel->all_candidates(*node, target);
      for (const Candidate& candidate : listed) {
        const bool chosen = asked.kernel == choice.kernel && candidate.config == choice.candidate.config;
        nlohmann::ordered_json row = {{"algorithm", asked.kernel->name()}};
        if (!asked.refusal.empty())
          row["refused"] = asked.refusal;
        else
          row.update({{"chosen", chosen},
                      {"config", candidate.config},
                      {"estimated_us", candidate.estimated_us},
                      {"neighbours_us", asked.neighbours_us},
                      {"tolerance", candidate.tolerance}});
        const std::string algorithm = fmt::format("{}{}", asked.kernel->name(), chosen ? " *" : "");
        if (!asked.refusal.empty())
          table.add({title_of(conv), shape, algorithm, "refused: " + asked.refusal});
        else
          table.add({title_of(conv), shape, algorithm, fmt::format("{:.2f}", candidate.estimated_us),
                     fmt::format("{:.2f}", floor.us), std::string(floor.by), fmt::format("{:.1e}", candidate.tolerance),
                     candidate.config});
        rows.push_back(std::move(row));
      }
    }
    if (options.json)
      fmt::print(
          "{}\n",
          nlohmann::ordered_json{{"name", conv.name}, {"problem", shape}, {"algorithms", std::move(rows)}}.dump());
  }
  if (!options.json) table.print();
}

void check_names(const Options& options, DeviceKind device) {
  for (const std::string& name : options.algorithms)
    if (find_kernel("Conv", device, name) == nullptr) {
      std::vector<std::string_view> known;
      for (const Kernel* kernel : kernels_of("Conv", device)) known.push_back(kernel->name());
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("no convolution algorithm of {} is called \"{}\"; there are: {}", to_string(device), name,
                              fmt::join(known, ", ")));
    }
}

/// False if a result is further from the reference than its algorithm's tolerance.
bool bench_conv(const Options& options) {
  check(options);
  const std::vector<NamedConv> problems = problems_of(options);
  const std::unique_ptr<KernelTimer> timer = options.profile ? nullptr : timer_of(options);
  const DeviceProfile profile = timer != nullptr ? timer->device() : stated_gpu(*options.profile);
  const DeviceKind device = profile.kind;
  check_names(options, device);
  if (device == DeviceKind::cpu && numerics_of(options) != Numerics() && numerics_of(options) != parse_numerics("bf16"))
    throw Error(
        ErrorKind::unsupported,
        fmt::format(
            "the CPU computes in fp32 and bf16, not {}; --plans --profile h100 plans for a GPU that need not be "
            "there",
            to_string(numerics_of(options))));
  if (options.plans) {
    print_plans(problems, profile, options);
    return true;
  }
  const Peak peak = timer->peak(numerics_of(options));
  nlohmann::json list = nlohmann::json::array();
  if (!options.json) print_head(peak, options, device);
  const std::vector<Column> columns = measured_columns_for(problems);
  TextTable table(columns, options.table);
  bool right = true;
  for (const NamedConv& conv : problems) {
    const Result result = measure(*timer, conv, peak, options);
    for (const Row& row : result.rows) right = right && row.error <= row.tolerance;
    if (options.json)
      list.push_back(to_json(result));
    else
      print(result, table);
  }
  if (!options.json)
    fmt::print("{}", table.omitted());
  else
    print_document(
        nlohmann::json{
            {"device", to_string(device)},
            {"precision", to_string(numerics_of(options))},
            {"epilogue", options.plain ? "none" : "bias, relu"},  // for problems without an epilogue of their own
            {"buffers", device == DeviceKind::cpu || options.same_buffers ? "same" : "rotating"},
            {"peak", {{"gflops", peak.flops_per_us / 1e3}, {"gb_per_s", peak.bytes_per_us / 1e3}, {"how", peak.how}}},
            {"problems", std::move(list)}},
        options.plan);
  return right;
}

}  // namespace

void add_bench_conv(CLI::App& bench, ExitCode& result) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = bench.add_subcommand("conv", "Time convolution algorithms one by one");
  verb->add_option("--problem", options->problems,
                   "N,C,H,W,K,R,S[,stride[,pad[,dilation[,groups]]]], or as `lenslet layers` and `inspect` print it; "
                   "may be repeated")
      ->type_name("PROBLEM")
      ->expected(1, -1);
  verb->add_option("--set", options->sets, "Layers of networks, separated by commas")
      ->delimiter(',')
      ->check(CLI::IsMember(conv_set_names()));
  verb->add_option("--batch", options->batches, "Batch sizes of --set, separated by commas")
      ->delimiter(',')
      ->transform(whole_number<std::int64_t>(1, max_batch))
      ->capture_default_str();
  CLI::Option* const drawn =
      verb->add_option("--drawn", options->drawn, "So many problems drawn at random")->check(CLI::Range(0, 100000));
  verb->add_flag("--odd", options->odd,
                 "Of --drawn: lines, long filters, thin images and others that networks of photographs have not")
      ->needs(drawn);
  verb->add_option("--seed", options->seed, "Of --drawn: the same problems each time")->capture_default_str();
  CLI::Option* const algorithms =
      verb->add_option("--algorithm", options->algorithms, "These, separated by commas, not what the rule chooses")
          ->delimiter(',');
  verb->add_option(
      "--config", options->config,
      "How the one --algorithm is to run, as `lenslet inspect` shows it: \"tile=128x64 split_k=4 cluster=1\"");
  verb->add_flag("--all-algorithms", options->all_algorithms, "Not only what the rule chooses; refusals with reasons")
      ->excludes(algorithms);
  CLI::Option* const plans =
      verb->add_flag("--plans", options->plans,
                     "What each algorithm would do and its estimate, or why it refuses; measures nothing. With --json "
                     "one line of JSON a problem")
          ->excludes("--config");
  verb->add_flag("--configs", options->configs,
                 "Of --plans: every configuration of an algorithm, the one it takes first")
      ->needs(plans);
  verb->add_option("--profile", options->profile, "Of --plans: for this GPU, which need not be there")
      ->check(CLI::IsMember(stated_gpu_names()))
      ->needs(plans);
  verb->add_flag("--plain", options->plain, "Without bias and ReLU, where the problem does not say so itself");
  verb->add_flag("--same-buffers", options->same_buffers, "CUDA: always on the same memory, warm in L2 where it fits");
  add_device_options(*verb, options->plan);
  verb->add_option("--seconds", options->seconds, "Time to spend on each measurement")
      ->check(number_up_to(3600))
      ->capture_default_str();
  add_table_options(*verb, options->table, {measured_columns, planned_columns});
  add_json_option(*verb, options->json);
  add_examples(*verb,
               "lenslet bench conv --problem 1,64,56,56,64,3,3,1,1 --all-algorithms\n"
               "lenslet bench conv --problem \"1x64x56x56 -> 64, 1x1 s1 p0 g1 +bias +residual +relu\"\n"
               "lenslet bench conv --set resnet50 --batch 1,8 --device cuda\n"
               "lenslet bench conv --set vgg16 --plans --profile h100 --precision fp16");
  verb->callback([options, &result] { result = bench_conv(*options) ? exit_ok : exit_failed; });
}

}  // namespace lenslet::tool
