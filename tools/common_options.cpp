#include "tools/common_options.h"

#include <fmt/format.h>

#include <sstream>

namespace lenslet::tool {

void add_plan_options(CLI::App& verb, PlanOptions& options) {
  verb.add_option("--threads", options.threads, "Threads to work with; 0: all cores this process may use")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  verb.add_option("--device", options.device, "auto, cpu, cuda or cuda:INDEX")->capture_default_str();
  std::string names;
  for (const std::string& name : conv_algorithm_names("cpu")) names += (names.empty() ? "" : ", ") + name;
  verb.add_option("--conv-algorithm", options.conv_algorithm,
                  fmt::format("Force one convolution algorithm for every convolution (cpu: {})", names));
}

void add_json_option(CLI::App& verb, bool& json) { verb.add_flag("--json", json, "Print one JSON document instead"); }

void add_examples(CLI::App& verb, const std::string& examples) {
  std::string footer = "\nExamples:";
  std::istringstream lines(examples);
  for (std::string line; std::getline(lines, line);) footer += "\n  " + line;
  verb.footer(footer);
}

}  // namespace lenslet::tool
