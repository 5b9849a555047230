#pragma once
// lenslet: the command.

namespace lenslet::tool {

/// Reads which verb is meant, runs it, and turns errors into one line and an exit code. As main(): once in a process,
/// whose signals and standard streams it takes for its own.
int run_command(int argc, char** argv);

}  // namespace lenslet::tool
