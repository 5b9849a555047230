#pragma once
// Options that several verbs share, so that they are spelled and explained alike.

#include <CLI/CLI.hpp>
#include <string>

#include "lenslet/model.h"

namespace lenslet::tool {

/// --threads, --device (or the variable LENSLET_DEVICE), --precision: into `options`.
void add_device_options(CLI::App& verb, PlanOptions& options);
/// These, --conv-algorithm, --where-accepted and --sync-each-step.
void add_plan_options(CLI::App& verb, PlanOptions& options);
/// One line on stderr when device "auto" fell back to the CPU: that it did, and why. `note` is PlanInfo::device_note.
void print_device_note(const std::string& note);
/// --json
void add_json_option(CLI::App& verb, bool& json);
/// Examples shown at the end of the verb's --help, one a line, without indentation.
void add_examples(CLI::App& verb, const std::string& examples);

}  // namespace lenslet::tool
