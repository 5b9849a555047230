#include "base/cuda/kernel_code.h"

#include <fmt/format.h>

#include <charconv>
#include <sstream>

namespace lenslet::cuda {
namespace {

/// True if a device of that capability runs machine code for `architecture`: "86-real", "90a", "80-virtual" (PTX). It
/// runs older code of its own generation; "90a" runs on 9.0 only. "native" and "all" count as true.
bool runs(int capability, std::string_view architecture) {
  int made_for = 0;
  const char* const end = architecture.data() + architecture.size();
  const auto [rest, status] = std::from_chars(architecture.data(), end, made_for);
  if (status != std::errc()) return true;
  if (architecture.ends_with("-virtual")) return false;
  if (rest != end && *rest == 'a') return made_for == capability;
  return made_for / 10 == capability / 10 && made_for <= capability;
}

bool has_machine_code(std::string_view architectures, int capability) {
  std::istringstream words{std::string(architectures)};
  for (std::string word; words >> word;)
    if (runs(capability, word)) return true;
  return false;
}

}  // namespace

std::string compile_note(const KernelCode& code, std::string_view architectures) {
  // Loaded machine code reports the PTX of its own capability; compiled PTX reports the one it came from.
  const bool could_load = has_machine_code(architectures, code.binary);
  if (could_load && code.ptx >= code.binary) return {};
  return fmt::format(
      "{}machine code for compute capability {}.{}{}: the driver compiles the kernels when they are first used (10 to "
      "20 s; its cache keeps them)",
      could_load ? "" : "this build has no ", code.binary / 10, code.binary % 10,
      could_load ? " is not used (is CUDA_FORCE_PTX_JIT set?)" : "");
}

}  // namespace lenslet::cuda
