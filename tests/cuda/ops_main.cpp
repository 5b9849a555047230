// main() of lenslet-test-cuda-ops. Its cases come from tests/ops and know nothing of devices, so main() checks for one.

#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>
#include <string_view>

#include "tests/cuda/device_case.h"

int main(int argc, char** argv) {
  doctest::Context context(argc, argv);
  bool lists = false;
  std::string cases = "lenslet-test-cuda-ops";
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    lists = lists || argument.starts_with("--list") || argument.starts_with("-l");
    if (const auto at = argument.find("test-case="); at != argument.npos) cases = argument.substr(at + 10);
  }
  if (!lists && !lenslet::test::have_device(cases.c_str())) return 0;
  return context.run();
}
