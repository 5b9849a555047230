#pragma once
// Options that several verbs share, so that they are spelled and explained alike.

#include <CLI/CLI.hpp>
#include <string>

#include "lenslet/device.h"
#include "lenslet/model.h"

namespace lenslet::tool {

/// --threads, --device (or the variable LENSLET_DEVICE), --precision: into `options`.
void add_device_options(CLI::App& verb, PlanOptions& options);
/// These, --conv-algorithm, --where-accepted and --sync-each-step.
void add_plan_options(CLI::App& verb, PlanOptions& options);
/// Chooses the device, and says on stderr what there is to say of it (DeviceChoice::note). To be called before a Runner
/// is made: that may take the time which the note explains.
DeviceChoice print_device_note(const PlanOptions& options);
/// --json
void add_json_option(CLI::App& verb, bool& json);
/// Examples shown at the end of the verb's --help, one a line, without indentation.
void add_examples(CLI::App& verb, const std::string& examples);

}  // namespace lenslet::tool
