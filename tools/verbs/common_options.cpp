#include "tools/verbs/common_options.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <sstream>

#include "tools/verbs/terminal.h"

namespace lenslet::tool {

namespace {

// "cpu: direct, im2col; cuda: ...", without devices for which this build has no algorithms.
std::string known_algorithms() {
  std::string text;
  for (const char* device : {"cpu", "cuda"}) {
    const std::vector<std::string> names = conv_algorithm_names(device);
    if (!names.empty()) text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", device, fmt::join(names, ", "));
  }
  return text;
}

constexpr const char* device_variable = "LENSLET_DEVICE";
bool device_is_given = false;  // by option or variable

template <typename Threads>
CLI::Option* add_threads_option(CLI::App& verb, Threads& threads, const char* more) {
  return verb
      .add_option("--threads", threads, fmt::format("Threads to work with; 0: all cores this process may use{}", more))
      ->transform(whole_number(0, 1024))
      ->capture_default_str();
}

void add_device_and_precision(CLI::App& verb, PlanOptions& options) {
  verb.add_option("--device", options.device, "auto (cuda:0 where it can be used, else cpu), cpu, cuda or cuda:INDEX")
      ->envname(device_variable)
      ->each([](const std::string&) { device_is_given = true; })
      ->capture_default_str();
  verb.add_option_function<std::string>(
          "--precision",
          [&options](const std::string& name) {
            try {
              options.numerics = parse_numerics(name);
            } catch (const Error& error) {
              throw CLI::ValidationError("--precision", error.message());
            }
          },
          "fp32 (IEEE), bf16 (values stored in 16 bit); on CUDA also fp16, and tf32 (products of rounded operands)")
      ->default_str("the model's");
}

void add_other_plan_options(CLI::App& verb, PlanOptions& options) {
  verb.add_flag("--sync-each-step", options.sync_each_step,
                "CUDA: wait after each step, so that an error names its node; slow");
  verb.add_flag("--flush-denormals", options.flush_denormals,
                "CPU: take denormal numbers for zero, which are slow; the results may differ in them");
  options.conv_algorithm_where_accepted = true;
  verb.add_option_function<std::vector<std::string>>(
          "--conv-algorithm", [&options](const std::vector<std::string>& texts) { force_algorithms(options, texts); },
          fmt::format("Force an algorithm: NAME for every convolution, LAYER=NAME for one layer; repeatable ({})",
                      known_algorithms()))
      ->type_name("[LAYER=]NAME")
      ->allow_extra_args(false);
  verb.add_flag_callback(
      "--strict", [&options] { options.conv_algorithm_where_accepted = false; },
      "A layer that refuses the forced algorithm is an error; else it keeps the rule's choice, and a note says so");
}

}  // namespace

void force_algorithms(PlanOptions& options, const std::vector<std::string>& texts) {
  for (const std::string& text : texts) {
    const std::size_t equals = text.rfind('=');
    if (equals == std::string::npos)
      options.conv_algorithm = text;
    else
      options.layer_algorithms.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
}

void add_device_options(CLI::App& verb, PlanOptions& options) {
  add_threads_option(verb, options.threads, "");
  add_device_and_precision(verb, options);
}

void add_plan_options(CLI::App& verb, PlanOptions& options) {
  add_device_options(verb, options);
  add_other_plan_options(verb, options);
}

void add_plan_options(CLI::App& verb, PlanOptions& options, std::vector<int>& threads) {
  add_threads_option(verb, threads, "; separated by commas")->delimiter(',')->allow_extra_args(false);
  add_device_and_precision(verb, options);
  add_other_plan_options(verb, options);
}

void note_refused_algorithms(const PlanInfo& plan, const PlanOptions& options) {
  const auto wanted_for = [&](const StepInfo& step) {
    for (const auto& [layer, algorithm] : options.layer_algorithms)
      if (layer == step.name) return algorithm;
    return options.conv_algorithm;
  };
  std::size_t refused = 0;
  std::string first;
  for (const StepInfo& step : plan.steps)
    for (const StepCandidate& candidate : step.candidates) {
      if (candidate.refusal.empty() || candidate.algorithm != wanted_for(step)) continue;
      if (refused++ == 0) first = fmt::format("{}: {} refuses: {}", step.name, candidate.algorithm, candidate.refusal);
    }
  if (refused > 0)
    note(fmt::format("{} {} the rule's choice ({}); --strict makes that an error", refused,
                     refused == 1 ? "layer keeps" : "layers keep", first));
}

void add_warmup_option(CLI::App& verb, int& runs) {
  verb.add_option("--warmup", runs, "Runs before those that are timed, the first of all included")
      ->transform(whole_number(1, 1'000'000))
      ->capture_default_str();
}

DeviceChoice print_device_note(const PlanOptions& options) {
  DeviceChoice device = choose_device(options.device);
  const char* variable = std::getenv(device_variable);
  const bool by_variable = variable != nullptr && *variable != '\0';
  const bool is_asked_for = !by_variable && (device_is_given || isatty(STDERR_FILENO) == 1);
  if (!device.note.empty() && (is_asked_for || device.is_cuda())) note(device.note);
  return device;
}

CLI::Option* add_json_option(CLI::App& verb, bool& json) {
  return verb.add_flag("--json", json, "Print one JSON document instead");
}

CLI::Validator finite_number() {
  const auto check = [](const std::string& text) -> std::string {
    double value = 0;
    const bool good = CLI::detail::lexical_cast(text, value) && std::isfinite(value);
    return good ? "" : fmt::format("'{}' is no finite number", text);
  };
  return {check, "FLOAT"};
}

CLI::Validator number_up_to(double most) {
  const std::string range =
      most < std::numeric_limits<double>::max() ? fmt::format("in [0 - {}]", most) : "of 0 or more";
  const auto check = [most, range](const std::string& text) -> std::string {
    double value = 0;
    const bool good = CLI::detail::lexical_cast(text, value) && value >= 0 && value <= most;  // false for NaN
    return good ? "" : fmt::format("'{}' is no finite number {}", text, range);
  };
  return {check, fmt::format("FLOAT {}", range)};
}

CLI::Validator precision_name() {
  return {[](const std::string& name) {
            try {
              parse_numerics(name);
            } catch (const Error& error) {
              return error.message();
            }
            return std::string();
          },
          ""};
}

CLI::Validator not_empty() {
  return {[](const std::string& text) { return text.empty() ? "the name is empty" : ""; }, ""};
}

void add_examples(CLI::App& verb, const std::string& examples) {
  std::string footer = "\nExamples:";
  std::istringstream lines(examples);
  for (std::string line; std::getline(lines, line);) footer += "\n  " + line;
  verb.footer(footer);
}

}  // namespace lenslet::tool
