#include "base/convert.h"

#include "base/convert_floats.h"
#include "base/dtypes.h"

namespace lenslet {

void convert_elements(DType from, const void* x, DType to, void* y, std::int64_t count) {
  if (convert_floats(from, x, to, y, count)) return;
  dispatch(from, AllTypes(), [&]<typename From>(std::type_identity<From>) {
    dispatch(to, AllTypes(), [&]<typename To>(std::type_identity<To>) {
      const Convert<To, From> f;
      const auto* source = static_cast<const Stored<From>*>(x);
      auto* target = static_cast<Stored<To>*>(y);
      for (std::int64_t i = 0; i < count; ++i) target[i] = f(source[i]);
    });
  });
}

}  // namespace lenslet
