// lenslet: the command. Reads which verb is meant, runs it, and turns errors into one line and an exit code.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>

#include "lenslet/error.h"
#include "tools/verbs/common_options.h"
#include "tools/verbs/exit_codes.h"
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

int fail(ExitCode code, const std::string& message) {
  fmt::print(stderr, "lenslet: error: {}\n", message);
  return code;
}

int main(int argc, char** argv) {
  CLI::App app{"lenslet: runs convolutional networks from ONNX files", "lenslet"};
  app.set_help_all_flag("--help-all", "Help for all verbs");
  app.require_subcommand(1);
  app.footer(footer());
  ExitCode result = exit_ok;
  try {
    for (auto* add : verbs) add(app, result);
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    return fail(exit_usage, error.what());
  } catch (const Error& error) {
    return fail(exit_code(error.kind()), error.what());
  } catch (const std::bad_alloc&) {
    return fail(exit_failed, "out of memory");
  } catch (const std::exception& error) {
    return fail(exit_internal, error.what());
  }
  return result;
}

}  // namespace
}  // namespace lenslet::tool

int main(int argc, char** argv) { return lenslet::tool::main(argc, argv); }
