#pragma once
// Location of the acceptance data: shared/data beside the repository (not part of it).

#include <filesystem>
#include <optional>
#include <string>

namespace lenslet::test {

/// shared/data/NAME, or nothing if it is missing. LENSLET_SOURCE_DIR is a compile definition of the tests.
inline std::optional<std::filesystem::path> shared_data(const std::string& name) {
  const std::filesystem::path source(LENSLET_SOURCE_DIR);
  for (const auto& root : {source / "shared", source.parent_path() / "shared"}) {
    const auto path = root / "data" / name;
    std::error_code ignored;
    if (std::filesystem::exists(path, ignored)) return path;
  }
  return std::nullopt;
}

}  // namespace lenslet::test

/// Leaves the doctest case with a message that names the missing data.
#define LENSLET_REQUIRE_SHARED(variable, name)                                          \
  const auto variable##_found = ::lenslet::test::shared_data(name);                     \
  if (!variable##_found) {                                                              \
    MESSAGE("skipped: shared/data/" << std::string(name) << " is not on this machine"); \
    return;                                                                             \
  }                                                                                     \
  const std::filesystem::path& variable = *variable##_found
