#pragma once
// Test cases that need a device. Without one each prints a line by which CTest counts it as skipped.

#include <doctest/doctest.h>

#include <string>

namespace lenslet::test {

/// True if cuda:0 runs our kernels; otherwise prints "NAME: skipped, no usable CUDA device: REASON", once a case.
bool have_device(const std::string& name);
/// The same for further requirements: prints `reason`, why the case cannot run, and returns false unless it is empty.
bool can_run(const std::string& name, const std::string& reason);
/// Why kernels for sm_90a do not run on cuda:0; empty if they do. cuda/profile/what_a_hopper_has tests a Hopper.
std::string no_wgmma();
/// compute-sanitizer slows kernels down by a factor of 100; gpu_check.sh then sets LENSLET_TEST_REDUCED.
bool reduced();

}  // namespace lenslet::test

#define LENSLET_CASE_THAT_NEEDS(name, condition, function) \
  static void function();                                  \
  TEST_CASE(name) {                                        \
    if (condition) function();                             \
  }                                                        \
  static void function()

#define DEVICE_CASE(name) \
  LENSLET_CASE_THAT_NEEDS(name, ::lenslet::test::have_device(name), DOCTEST_ANONYMOUS(on_device_))
/// Needs wgmma and thread-block clusters.
#define HOPPER_CASE(name)                                                                                      \
  LENSLET_CASE_THAT_NEEDS(                                                                                     \
      name, ::lenslet::test::have_device(name) && ::lenslet::test::can_run(name, ::lenslet::test::no_wgmma()), \
      DOCTEST_ANONYMOUS(on_hopper_))
