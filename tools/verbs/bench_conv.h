#pragma once

#include <CLI/CLI.hpp>

#include "tools/verbs/exit_codes.h"

namespace lenslet::tool {

/// `conv` as a subcommand of the verb `bench`; see verbs.h.
void add_bench_conv(CLI::App& bench, ExitCode& result);

}  // namespace lenslet::tool
