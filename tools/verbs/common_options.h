#pragma once
// Options that several verbs share, so that they are spelled and explained alike.

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
/// These, --conv-algorithm, --strict and --sync-each-step. Without --strict, layers that refuse a forced algorithm keep
/// the rule's choice.
void add_plan_options(CLI::App& verb, PlanOptions& options);
/// The same with --threads as a list, apart from `options`.
void add_plan_options(CLI::App& verb, PlanOptions& options, std::vector<int>& threads);
/// What --conv-algorithm says: NAME, or LAYER=NAME.
void force_algorithms(PlanOptions& options, const std::vector<std::string>& texts);
/// Says on stderr how many layers refused the algorithm that `options` forces, and the first one's reason.
void note_refused_algorithms(const PlanInfo& plan, const PlanOptions& options);
/// --warmup: runs before those that are timed.
void add_warmup_option(CLI::App& verb, int& runs);
inline constexpr int default_warmup = 2;
/// Chooses the device, and says on stderr what there is to say of it (DeviceChoice::note): that the driver will compile
/// the kernels, always; that `auto` took the CPU and why, where a person asks, by --device auto or at a terminal,
/// unless LENSLET_DEVICE is set. To be called before a Runner is made: that may take the time which the note explains.
DeviceChoice print_device_note(const PlanOptions& options);
/// --json
CLI::Option* add_json_option(CLI::App& verb, bool& json);
/// One JSON document (nlohmann::json or ordered_json) on stdout. Names need not be UTF-8, JSON has to be: bytes that
/// are not become U+FFFD.
template <typename Json>
void print_document(const Json& document) {
  fmt::print("{}\n", document.dump(2, ' ', false, Json::error_handler_t::replace));
}
/// The same with where it comes from, as the member "machine".
template <typename Json>
void print_document(Json document, const PlanOptions& plan) {
  document["machine"] = provenance(plan);
  print_document(document);
}
/// More images than any value may have elements (docs/limits.md).
inline constexpr std::int64_t max_batch = std::int64_t{1} << 40;

/// For Option::transform: a whole number in decimal notation. (CLI11 alone lets -1 wrap around and 2^64 saturate, and
/// reads 010 as 8.)
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
/// For Option::check: a finite number from 0 to `most`. (CLI::Range lets NaN pass.)
CLI::Validator number_up_to(double most);
/// For Option::check: names of files and folders.
CLI::Validator not_empty();
/// Examples shown at the end of the verb's --help, one a line, without indentation.
void add_examples(CLI::App& verb, const std::string& examples);

}  // namespace lenslet::tool
