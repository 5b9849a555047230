// LENSLET_INSTRUCTION_SET=AVX2 limits all tests to that instruction set. With LENSLET_LESSER_ONLY no test runs if it is
// this CPU's best, because the normal run covers it.

#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>

#include "lenslet/device.h"
#include "lenslet/error.h"

int main(int argc, char** argv) {
  try {
    if (const char* name = std::getenv("LENSLET_INSTRUCTION_SET")) {
      if (std::getenv("LENSLET_LESSER_ONLY") != nullptr && lenslet::query_cpu().architecture == name) {
        std::printf("skipped: %s is this CPU's best\n", name);
        return 0;
      }
      lenslet::limit_instruction_set(name);
    }
  } catch (const lenslet::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return doctest::Context(argc, argv).run();
}
