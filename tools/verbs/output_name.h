#pragma once
// Makes file names from value names, which may contain anything.

#include <set>
#include <string>
#include <string_view>

namespace lenslet::tool {

class OutputNames {
 public:
  /// "NAME.npy": letters, digits, '.', '_' and '-' stay, everything else becomes '_'; never hidden, never empty, at
  /// most 128 characters, and different from all names given before.
  std::string file_name(std::string_view value_name);

 private:
  std::set<std::string> taken_;
};

}  // namespace lenslet::tool
