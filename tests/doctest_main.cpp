// LENSLET_INSTRUCTION_SET=AVX2 runs all tests with no better instruction set than that.

#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>

#include "lenslet/device.h"
#include "lenslet/error.h"

int main(int argc, char** argv) {
  try {
    if (const char* name = std::getenv("LENSLET_INSTRUCTION_SET")) lenslet::limit_instruction_set(name);
  } catch (const lenslet::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return doctest::Context(argc, argv).run();
}
