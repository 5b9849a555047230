#include "lenslet/version.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>

namespace lenslet {
namespace {

TEST_CASE("version/macros_agree_with_cmake") {
  CHECK(std::string(LENSLET_VERSION) == LENSLET_CMAKE_VERSION);
  CHECK(LENSLET_VERSION ==
        fmt::format("{}.{}.{}", LENSLET_VERSION_MAJOR, LENSLET_VERSION_MINOR, LENSLET_VERSION_PATCH));
}

}  // namespace
}  // namespace lenslet
