#pragma once
// Makes file names from value names, which may contain any characters.

#include <set>
#include <string>
#include <string_view>

namespace lenslet::tool {

class OutputNames {
 public:
  /// "NAME.npy": keeps letters, digits, '.', '_' and '-' and replaces all else by '_'. Never hidden or empty, at most
  /// 128 characters, and different from all names given before.
  std::string file_name(std::string_view value_name);

 private:
  std::set<std::string> taken_;
};

}  // namespace lenslet::tool
