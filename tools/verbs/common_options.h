#pragma once
// Options that several verbs share, with the same spelling and help.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <concepts>
#include <cstdint>
#include <limits>
#include <string>
#include <system_error>
#include <vector>

#include "lenslet/device.h"
#include "lenslet/model.h"
#include "tools/verbs/provenance.h"

namespace lenslet::tool {

/// --threads, --device (or the variable LENSLET_DEVICE), --precision: into `options`.
void add_device_options(CLI::App& verb, PlanOptions& options);
/// These and --conv-algorithm, --strict and --sync-each-step. Without --strict, layers that refuse a forced algorithm
/// use the rule's choice.
void add_plan_options(CLI::App& verb, PlanOptions& options);
/// The same with --threads as a list, stored outside `options`.
void add_plan_options(CLI::App& verb, PlanOptions& options, std::vector<int>& threads);
/// Applies --conv-algorithm: NAME, or LAYER=NAME.
void force_algorithms(PlanOptions& options, const std::vector<std::string>& texts);
/// Reports on stderr how many layers refused the algorithm that `options` forces, and the first one's reason.
void note_refused_algorithms(const PlanInfo& plan, const PlanOptions& options);
/// --warmup: untimed runs before the timed ones.
void add_warmup_option(CLI::App& verb, int& runs);
inline constexpr int default_warmup = 2;
/// Chooses the device and prints DeviceChoice::note on stderr: always that the driver will compile the kernels; that
/// `auto` took the CPU, and why, only with --device auto or at a terminal, unless LENSLET_DEVICE is set. Call it before
/// making a Runner, since the note explains the time which that may take.
DeviceChoice print_device_note(const PlanOptions& options);
/// --json
CLI::Option* add_json_option(CLI::App& verb, bool& json);
/// One JSON document (nlohmann::json or ordered_json) on stdout. Bytes of names that are not UTF-8 become U+FFFD.
template <typename Json>
void print_document(const Json& document) {
  fmt::print("{}\n", document.dump(2, ' ', false, Json::error_handler_t::replace));
}
/// The same with its provenance as the member "machine".
template <typename Json>
void print_document(Json document, const PlanOptions& plan) {
  document["machine"] = provenance(plan);
  print_document(document);
}
/// More images than any value may have elements (docs/limits.md).
inline constexpr std::int64_t max_batch = std::int64_t{1} << 40;

/// For Option::transform: a decimal integer. (CLI11 alone lets -1 wrap around and 2^64 saturate, and reads 010 as 8.)
template <std::integral Number>
CLI::Validator whole_number(Number least, Number most) {
  const auto read = [least, most](std::string& text) -> std::string {
    Number value{};
    const char* const end = text.data() + text.size();
    const auto [at, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc{} || at != end || value < least || value > most)
      return fmt::format("'{}' is no whole number from {} to {}", text, least, most);
    text = fmt::to_string(value);
    return {};
  };
  return {read, fmt::format("INT in [{} - {}]", least, most)};
}
/// For Option::check: any finite number.
CLI::Validator finite_number();
/// For Option::check: a finite number from 0 to `most`. (CLI::Range accepts NaN.)
CLI::Validator number_up_to(double most);
/// For Option::check: names of files and folders.
CLI::Validator not_empty();
/// What parse_numerics() takes.
CLI::Validator precision_name();
/// Examples shown at the end of the verb's --help, one a line, without indentation.
void add_examples(CLI::App& verb, const std::string& examples);

}  // namespace lenslet::tool
