#pragma once
// Which families of operators are built: LENSLET_FAMILIES of CMake, a compile definition of the files that ask. Without
// one it is all of them.

#include <string_view>

namespace lenslet {

/// For `if constexpr`, so that what names a family that is left out is not linked.
consteval bool built([[maybe_unused]] std::string_view family) {
#ifdef LENSLET_FAMILIES
  for (std::string_view rest = " " LENSLET_FAMILIES " "; !rest.empty(); rest.remove_prefix(1))
    if (rest.starts_with(' ') && rest.substr(1).starts_with(family) && rest.substr(1 + family.size()).starts_with(' '))
      return true;
  return false;
#else
  return true;
#endif
}

}  // namespace lenslet
