#include "tools/verbs/command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include "lenslet/device.h"
#include "lenslet/error.h"
#include "tools/verbs/common_options.h"
#include "tools/verbs/exit_codes.h"
#include "tools/verbs/provenance.h"
#include "tools/verbs/suggest.h"
#include "tools/verbs/terminal.h"
#include "tools/verbs/verbs.h"

namespace lenslet::tool {
namespace {

// In the order of --help.
// clang-format off
constexpr void (*verbs[])(CLI::App&, ExitCode&) = {
    add_classify,
    add_detect,
    add_card,
    add_run,
    add_check,
    add_inspect,
    add_verify,
    add_diff,
    add_quantize,
    add_layers,
    add_report,
    add_bench,
#ifndef LENSLET_WITHOUT_SCAN
    add_scan,
#endif
    add_devices,
    add_generate,
};
// clang-format on

std::string footer() {
  std::string text = "\nExit codes:";
  for (const ExitCodeMeaning& row : exit_code_meanings) text += fmt::format("\n  {}  {}", int{row.code}, row.meaning);
  text += "\n\n`lenslet VERB --help` explains a verb and shows examples.";
  return text;
}

// Files opened later must not get closed streams' descriptors. Writing to a folder fails as writing to these does.
void occupy_closed_streams() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(descriptor, F_GETFD) < 0) ::open("/", O_RDONLY);  // takes the lowest free descriptor
}

ExitCode failed(const Error& error, bool all_reasons) {
  say(error, all_reasons);
  return exit_code(error.kind());
}

ExitCode failed(ExitCode code, const std::string& message) {
  say(fmt::format("error: {}", message));
  return code;
}

ExitCode unwritable(const std::error_code& why) {
  if (why == std::errc::broken_pipe) return exit_closed_pipe;
  return failed(exit_io, fmt::format("standard output cannot be written: {}", why.message()));
}

// An argument that no verb took, and after an option the name that may be meant.
std::string stray_argument(const CLI::App& app, const std::string& argument) {
  if (!argument.starts_with("--")) return argument;
  std::vector<std::string> known;
  for (const CLI::App* verb = &app; verb != nullptr;) {
    for (const CLI::Option* option : verb->get_options())
      for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
    const std::vector<CLI::App*> below = verb->get_subcommands();
    verb = below.empty() ? nullptr : below.front();
  }
  return argument + did_you_mean(argument.substr(0, argument.find('=')), known);
}

std::string usage_error(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<std::string> rest = app.remaining();
  if (!app.get_subcommands().empty()) {
    if (dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr) return error.what();
    std::vector<std::string> stray = app.remaining(true);  // in error.what() the last comes first
    for (std::string& argument : stray) argument = stray_argument(app, argument);
    return fmt::format("The following argument{} not expected: {}", stray.size() > 1 ? "s were" : " was",
                       fmt::join(stray, " "));
  }
  std::vector<std::string> known;
  for (const CLI::App* verb : app.get_subcommands({})) known.push_back(verb->get_name());
  if (rest.empty()) return fmt::format("a verb is missing; there are: {}", fmt::join(known, ", "));
  return fmt::format("there is no verb '{}'{}; there are: {}", rest.front(), did_you_mean(rest.front(), known),
                     fmt::join(known, ", "));
}

ExitCode run(int argc, char** argv) {
  CLI::App app{"lenslet: runs convolutional networks from ONNX files", "lenslet"};
  app.set_help_all_flag("--help-all", "Help for all verbs");
  app.set_version_flag("--version", "lenslet " + version_text());
  app.require_subcommand(1);
  app.footer(footer());
  app.fallthrough();  // options unknown to a verb are looked up here
  bool all_reasons = false;
  app.add_flag("--all", all_reasons, "List every reason of an error that has many");
  app.add_option_function<std::string>("--instruction-set", limit_instruction_set,
                                       "CPU: no better one than this, as `lenslet devices` calls them (AVX2)")
      ->envname("LENSLET_INSTRUCTION_SET");
  ExitCode result = exit_ok;
  try {
    for (auto* add : verbs) add(app, result);
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (argc == 1) fmt::print(stderr, "{}", app.help());
    if (error.get_exit_code() != 0) return failed(exit_usage, usage_error(app, error));
    app.exit(error);  // --help
  } catch (const Error& error) {
    return failed(error, all_reasons);
  } catch (const std::bad_alloc&) {
    return failed(exit_code(ErrorKind::limit), "out of memory");
  } catch (const std::filesystem::filesystem_error& error) {
    return failed(exit_io, error.what());
  } catch (const std::system_error& error) {
    if (std::ferror(stdout) != 0) return unwritable(error.code());  // from fmt::print
    // std::thread's: no memory for a stack, or the process's limit.
    if (error.code() == std::errc::resource_unavailable_try_again)
      return failed(exit_code(ErrorKind::limit), "no memory for another thread, or too many threads");
    return failed(exit_internal, error.what());
  } catch (const std::exception& error) {
    return failed(exit_internal, error.what());
  }
  // A result counts only if it was written. A verb's own errors take precedence.
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) return unwritable({errno, std::generic_category()});
  return result;
}

}  // namespace

int run_command(int argc, char** argv) {
  occupy_closed_streams();
  // A closed pipe or the limit of a file's size makes writing fail like a full disk.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  const ExitCode code = run(argc, argv);
  const bool lost = std::ferror(stderr) != 0 && code <= exit_failed;  // a lost note or error message
  return lost ? exit_io : code;
}

}  // namespace lenslet::tool
