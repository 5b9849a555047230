#pragma once
// The verbs of `lenslet`. Each has a line here, one in the table of command.cpp, and a file.
//
// A verb's `add_*` adds a subcommand with its options to `app`, and sets the callback that does the work. The callback
// stores its exit code in `result`. It does not catch Errors: run_command() prints them and chooses the exit code.

#include <CLI/CLI.hpp>

#include "tools/verbs/exit_codes.h"

namespace lenslet::tool {

void add_classify(CLI::App& app, ExitCode& result);
void add_detect(CLI::App& app, ExitCode& result);
void add_card(CLI::App& app, ExitCode& result);
void add_run(CLI::App& app, ExitCode& result);
void add_check(CLI::App& app, ExitCode& result);
void add_inspect(CLI::App& app, ExitCode& result);
void add_verify(CLI::App& app, ExitCode& result);
void add_diff(CLI::App& app, ExitCode& result);
void add_quantize(CLI::App& app, ExitCode& result);
void add_layers(CLI::App& app, ExitCode& result);
void add_report(CLI::App& app, ExitCode& result);
void add_bench(CLI::App& app, ExitCode& result);
void add_bench_conv(CLI::App& bench, ExitCode& result);  ///< `conv`, added by `bench` as its subcommand
void add_scan(CLI::App& app, ExitCode& result);
void add_devices(CLI::App& app, ExitCode& result);
void add_generate(CLI::App& app, ExitCode& result);

}  // namespace lenslet::tool
