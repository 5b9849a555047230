#include "base/dtypes.h"

#include <fmt/format.h>

namespace lenslet {

std::string DTypeSet::str() const {
  if (all()) return "any type";
  if (bits_ == dtypes<AllTypes>.bits_) return "any type but float8, float4, int4, int2";
  std::string names;
  for (unsigned i = 0; i < dtype_count; ++i)
    if (contains(static_cast<DType>(i)))
      names += fmt::format("{}{}", names.empty() ? "" : ", ", to_string(static_cast<DType>(i)));
  return names;
}

}  // namespace lenslet
