// Machine code and PTX by compute capability. Needs no device.

#include "base/cuda/kernel_code.h"

#include <doctest/doctest.h>

#include <string>

namespace lenslet::cuda {
namespace {

constexpr const char* two = "90a-real 80-virtual";
constexpr const char* common = "80-real 86-real 89-real 90a-real 100-real 120-real 80-virtual";

bool mentions(const std::string& note, const char* text) { return note.find(text) != std::string::npos; }

TEST_CASE("cuda/kernel_code/machine_code_needs_no_note") {
  CHECK(compile_note({90, 90}, two) == "");
  // Each runs its own; sm_87 runs code for 8.6, sm_121 code for 12.0.
  for (const int capability : {80, 86, 89, 90, 100, 120}) {
    CAPTURE(capability);
    CHECK(compile_note({capability, capability}, common) == "");
  }
  // Without a suffix: machine code and PTX.
  CHECK(compile_note({86, 86}, "86") == "");
  for (const char* whatever : {"native", "all", "all-major"}) CHECK(compile_note({89, 89}, whatever) == "");
}

TEST_CASE("cuda/kernel_code/what_the_driver_compiled_is_told") {
  // An A100 runs PTX of its own capability.
  for (const KernelCode code : {KernelCode{80, 80}, {80, 86}, {80, 89}, {80, 100}, {80, 120}}) {
    CAPTURE(code.binary);
    CHECK(mentions(compile_note(code, two), "this build has no machine code for compute capability "));
  }
  CHECK(mentions(compile_note({80, 110}, common), "no machine code for compute capability 11.0: "));
  CHECK(mentions(compile_note({90, 120}, "90"), "no machine code for compute capability 12.0: "));
  // Code for sm_90a runs on 9.0 only; older code of the same generation would run.
  CHECK(mentions(compile_note({80, 103}, "100a-real 80-virtual"), "no machine code for compute capability 10.3: "));
  CHECK(
      compile_note({80, 89}, two) ==
      "this build has no machine code for compute capability 8.9: the driver compiles the kernels when they are first "
      "used (10 to 20 s; its cache keeps them)");
}

TEST_CASE("cuda/kernel_code/ptx_preferred_to_machine_code_is_told") {
  CHECK(mentions(compile_note({80, 90}, two), "machine code for compute capability 9.0 is not used"));
  CHECK(mentions(compile_note({80, 90}, two), "CUDA_FORCE_PTX_JIT"));
  CHECK(mentions(compile_note({80, 89}, common), "machine code for compute capability 8.9 is not used"));
  CHECK(mentions(compile_note({80, 87}, common), "machine code for compute capability 8.7 is not used"));
  CHECK(mentions(compile_note({80, 103}, common), "machine code for compute capability 10.3 is not used"));
}

}  // namespace
}  // namespace lenslet::cuda
