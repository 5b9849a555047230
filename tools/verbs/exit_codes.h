#pragma once
// Exit codes of `lenslet`. `lenslet --help` prints this table.

#include <array>
#include <string_view>

#include "lenslet/error.h"

namespace lenslet::tool {

enum ExitCode : int {
  exit_ok = 0,
  exit_failed = 1,
  exit_usage = 2,
  exit_model = 3,
  exit_io = 4,
  exit_device = 5,
  exit_internal = 6,
  exit_stopped = 130,      ///< 128 + SIGINT, as shells have it
  exit_closed_pipe = 141,  ///< 128 + SIGPIPE
};

struct ExitCodeMeaning {
  ExitCode code;
  std::string_view meaning;
};

inline constexpr std::array<ExitCodeMeaning, 9> exit_code_meanings{{
    {exit_ok, "everything was done"},
    {exit_failed, "some inputs failed (bad photos), or a check did not hold"},
    {exit_usage, "the command line makes no sense"},
    {exit_model, "the model was refused: damaged, unsupported, over a published limit, or more than the memory holds"},
    {exit_io, "a file cannot be opened, read or written, or the output cannot be printed"},
    {exit_device, "the accelerator, its driver or its library failed"},
    {exit_internal, "lenslet broke one of its own rules: please report it"},
    {exit_stopped,
     "stopped by ^C or SIGTERM; what was printed is whole, and quantize wrote no model: the same command goes on"},
    {exit_closed_pipe, "what reads the output has closed it, as `head` does"},
}};

constexpr ExitCode exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::invalid_argument:
      return exit_usage;
    case ErrorKind::invalid_model:
    case ErrorKind::unsupported:
    case ErrorKind::limit:
      return exit_model;
    case ErrorKind::invalid_image:
    case ErrorKind::cancelled:
      return exit_failed;
    case ErrorKind::io:
      return exit_io;
    case ErrorKind::device:
      return exit_device;
    case ErrorKind::internal:
      return exit_internal;
  }
  return exit_internal;
}

}  // namespace lenslet::tool
