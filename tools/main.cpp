// lenslet: the command. Reads which verb is meant, runs it, and turns errors into one line and an exit code.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <system_error>

#include "lenslet/error.h"
#include "tools/verbs/common_options.h"
#include "tools/verbs/exit_codes.h"
#include "tools/verbs/terminal.h"
#include "tools/verbs/verbs.h"

namespace lenslet::tool {
namespace {

// In the order of --help.
// clang-format off
constexpr void (*verbs[])(CLI::App&, ExitCode&) = {
    add_classify,
    add_run,
    add_check,
    add_inspect,
    add_verify,
    add_bench,
    add_devices,
};
// clang-format on

std::string footer() {
  std::string text = "\nExit codes:";
  for (const ExitCodeMeaning& row : exit_code_meanings) text += fmt::format("\n  {}  {}", int{row.code}, row.meaning);
  text += "\n\n`lenslet VERB --help` explains a verb and shows examples.";
  return text;
}

struct Outcome {
  ExitCode code = exit_ok;
  std::string error = {};  ///< for the one line on stderr; empty: there is none
};

Outcome unwritable(const std::error_code& why) {
  return {exit_io, "standard output cannot be written: " + why.message()};
}

Outcome run(int argc, char** argv) {
  CLI::App app{"lenslet: runs convolutional networks from ONNX files", "lenslet"};
  app.set_help_all_flag("--help-all", "Help for all verbs");
  app.require_subcommand(1);
  app.footer(footer());
  ExitCode result = exit_ok;
  try {
    for (auto* add : verbs) add(app, result);
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) return {exit_usage, error.what()};
    app.exit(error);  // --help
  } catch (const Error& error) {
    return {exit_code(error.kind()), error.what()};
  } catch (const std::bad_alloc&) {
    return {exit_code(ErrorKind::limit), "out of memory"};
  } catch (const std::system_error& error) {
    if (std::ferror(stdout) != 0) return unwritable(error.code());  // fmt::print
    // Of std::thread: no memory for a stack, or the process's limit.
    if (error.code() == std::errc::resource_unavailable_try_again)
      return {exit_code(ErrorKind::limit), "no memory for another thread, or too many threads"};
    return {exit_internal, error.what()};
  } catch (const std::exception& error) {
    return {exit_internal, error.what()};
  }
  return {result};
}

int main(int argc, char** argv) {
  // Where the reader of a pipe has gone, writing fails as on a full disk.
  std::signal(SIGPIPE, SIG_IGN);
  Outcome outcome = run(argc, argv);
  const bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (!written && outcome.error.empty()) outcome = unwritable({errno, std::generic_category()});
  if (!outcome.error.empty()) say("error: " + outcome.error);
  return outcome.code;
}

}  // namespace
}  // namespace lenslet::tool

int main(int argc, char** argv) { return lenslet::tool::main(argc, argv); }
