// lenslet check: ONNX backend test folders against their expected outputs.

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lenslet/device.h"
#include "lenslet/error.h"
#include "tools/verbs/common_options.h"
#include "tools/verbs/terminal.h"
#include "tools/verbs/test_cases.h"
#include "tools/verbs/verbs.h"

namespace lenslet::tool {

namespace {

struct Options {
  std::vector<std::string> folders;
  Tolerance tolerance;
  bool json = false, each_pass = false;
  PlanOptions plan;
};

ExitCode check(const Options& options) {
  // Before any case: an unusable device is not a failed case.
  const DeviceChoice device = print_device_note(options.plan);
  std::vector<std::filesystem::path> cases;
  for (const std::string& folder : options.folders) {
    const auto found = find_cases(folder);
    if (found.empty()) throw Error(ErrorKind::invalid_argument, "no model.onnx in it or below", folder);
    cases.insert(cases.end(), found.begin(), found.end());
  }
  std::array<int, 3> counts{};
  auto listed = nlohmann::json::array();
  for (const auto& folder : cases) {
    const CaseResult result = run_case(folder, options.plan, options.tolerance, options.each_pass);
    ++counts.at(static_cast<std::size_t>(result.status));
    if (options.json) {
      auto entry = nlohmann::json{{"case", folder.string()}, {"status", to_string(result.status)}};
      if (!result.reason.empty()) entry["reason"] = result.reason;
      if (!result.digests.empty()) entry["digests"] = result.digests;
      listed.push_back(std::move(entry));
    } else {
      fmt::print("{:<11} {}{}{}\n", to_string(result.status), printable(folder.string()),
                 result.reason.empty() ? "" : ": ", printable(result.reason));
    }
  }
  const auto [passed, failed, unsupported] = counts;
  if (options.json) {
    const nlohmann::json document{
        {"device", device.id}, {"cases", listed}, {"passed", passed}, {"failed", failed}, {"unsupported", unsupported}};
    print_document(document, options.plan);
  } else {
    fmt::print("{} passed, {} failed, {} unsupported\n", passed, failed, unsupported);
  }
  return failed == 0 ? exit_ok : exit_failed;
}

}  // namespace

void add_check(CLI::App& app, ExitCode& result) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand(
      "check", "Run test folders in the ONNX backend layout and compare with their expected outputs");
  verb->add_option("CASE_DIR", options->folders,
                   "Folders with model.onnx and test_data_set_K/{input,output}_I.pb, or folders of such folders")
      ->required()
      ->check(not_empty());
  verb->add_option("--rtol", options->tolerance.rtol, "Allowed error relative to each expected element")
      ->check(number_up_to(std::numeric_limits<double>::max()))
      ->capture_default_str();
  verb->add_option("--atol", options->tolerance.atol,
                   "Allowed error relative to the rms of each expected output (integers must be equal)")
      ->check(number_up_to(std::numeric_limits<double>::max()))
      ->capture_default_str();
  verb->add_flag("--each-pass", options->each_pass,
                 "Run each case again without each optional graph pass in turn, and without all of them");
  add_plan_options(*verb, options->plan);
  add_json_option(*verb, options->json);
  add_examples(*verb,
               "lenslet check node/test_relu\n"
               "lenslet check node simple --threads 2\n"
               "lenslet check node/test_basic_conv_with_padding --conv-algorithm direct");
  verb->callback([options, &result] { result = check(*options); });
}

}  // namespace lenslet::tool
