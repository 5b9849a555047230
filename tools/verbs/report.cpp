// lenslet report: one page about one or several measured models, for a browser.

#include <errno.h>
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

#include "lenslet/error.h"
#include "lenslet/tensor_file.h"
#include "report_page.h"  // generated from tools/report/ (tools/CMakeLists.txt)
#include "tools/verbs/common_options.h"
#include "tools/verbs/measured_layers.h"
#include "tools/verbs/plan_json.h"
#include "tools/verbs/report_data.h"
#include "tools/verbs/terminal.h"
#include "tools/verbs/verbs.h"

namespace lenslet::tool {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct Options : MeasuringOptions {
  std::vector<std::string> models, precisions;
  std::string output;
  bool json = false;
};

/// Before seconds of work.
void check_output(const Options& options) {
  std::error_code ignored;
  for (const std::string& model : options.models)
    if (fs::equivalent(model, options.output, ignored))
      throw Error(ErrorKind::invalid_argument, "this is one of the models", options.output);
  const fs::path folder = fs::absolute(options.output).parent_path();
  const auto unwritable = [&](std::string_view why) {
    throw Error(ErrorKind::io, fmt::format("cannot be written: {}", why), options.output);
  };
  if (fs::is_directory(options.output, ignored)) unwritable("it is a folder");
  if (!fs::is_directory(folder, ignored)) unwritable("there is no such folder");
  const fs::path changed = fs::exists(options.output, ignored) ? fs::path(options.output) : folder;
  if (access(changed.c_str(), W_OK) != 0) unwritable(std::generic_category().message(errno));
}

Json measured_run(const Options& options) {
  const MeasuredLayers measured = measure_layers(options);
  Json run = to_json(measured);
  run["machine"] = provenance(options.plan);
  run["inspect"] = to_json(measured.model, measured.plan);
  return run;
}

Json all_runs(Options options) {
  Json runs = Json::array();
  for (const std::string& model : options.models) {
    if (fs::path(model).extension() == ".json") {
      for (Json& run : read_report_runs(model)) runs.push_back(std::move(run));
      continue;
    }
    options.model = model;
    if (options.precisions.empty()) runs.push_back(measured_run(options));
    for (const std::string& precision : options.precisions) {
      options.plan.numerics = parse_numerics(precision);
      runs.push_back(measured_run(options));
    }
  }
  return runs;
}

std::string page_of(const Json& data) {
  constexpr std::string_view mark = "@DATA@";
  constexpr std::size_t at = report_page.find(mark);
  static_assert(at != std::string_view::npos);
  return fmt::format("{}{}{}", report_page.substr(0, at), embedded(data), report_page.substr(at + mark.size()));
}

void report(const Options& options) {
  if (!options.json && options.output.empty())
    throw Error(ErrorKind::invalid_argument, "-o FILE, for the page, or --json, for its data, is needed");
  if (!options.output.empty()) check_output(options);
  const Json data{{"schema", report_schema}, {"version", report_version}, {"runs", all_runs(options)}};
  if (options.output.empty()) return print_document(data);
  const std::string text = options.json ? embedded(data) + '\n' : page_of(data);
  write_file(options.output, std::as_bytes(std::span(text)));
}

}  // namespace

void add_report(CLI::App& app, ExitCode& result) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand(
      "report",
      "Write a page for browsers: each layer's time, limits, choice and error; graph; memory; several beside");
  verb->add_option("models", options->models, "ONNX files, and what `layers --json` or `report --json` printed (.json)")
      ->required();
  verb->add_option("-o,--output", options->output,
                   "The page, one HTML file that needs no network; with --json the data")
      ->check(not_empty());
  add_measuring_options(*verb, *options);
  add_plan_options(*verb, options->plan);
  verb->remove_option(verb->get_option("--precision"));
  verb->add_option("--precision", options->precisions, "As of `layers`; several, separated by commas, side by side")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(precision_name())
      ->default_str("the model's");
  add_json_option(*verb, options->json);
  add_examples(*verb,
               "lenslet report resnet50.onnx -o report.html\n"
               "lenslet report resnet50.onnx --precision fp32,bf16 -o report.html\n"
               "lenslet report resnet50.onnx --json -o monday.json\n"
               "lenslet report monday.json resnet50.onnx -o report.html");
  verb->callback([options, &result] {
    report(*options);
    result = exit_ok;
  });
}

}  // namespace lenslet::tool
