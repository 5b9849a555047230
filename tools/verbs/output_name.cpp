#include "tools/verbs/output_name.h"

#include <fmt/format.h>

namespace lenslet::tool {

std::string OutputNames::file_name(std::string_view value_name) {
  constexpr std::size_t longest = 110;  // leaves space for a number and the extension
  std::string stem;
  for (const char c : value_name.substr(0, longest)) {
    const bool kept =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
    stem += kept ? c : '_';
  }
  if (stem.empty()) stem = "output";
  if (stem.front() == '.' || stem.front() == '-') stem.front() = '_';
  std::string name = stem;
  for (int number = 2; !taken_.insert(name).second; ++number) name = fmt::format("{}_{}", stem, number);
  return name + ".npy";
}

}  // namespace lenslet::tool
