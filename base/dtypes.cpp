#include "base/dtypes.h"

#include <fmt/format.h>

namespace lenslet {

std::string DTypeSet::str() const {
  if (all()) return "any type";
  std::string names;
  for (unsigned i = 0; i <= static_cast<unsigned>(DType::boolean); ++i)
    if (contains(static_cast<DType>(i)))
      names += fmt::format("{}{}", names.empty() ? "" : ", ", to_string(static_cast<DType>(i)));
  return names;
}

}  // namespace lenslet
