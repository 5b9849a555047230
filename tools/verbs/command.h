#pragma once
// lenslet: the command.

namespace lenslet::tool {

/// Runs the verb of the command line; errors become one line and an exit code. Call it once in a process, like main():
/// it takes over signals and standard streams.
int run_command(int argc, char** argv);

}  // namespace lenslet::tool
