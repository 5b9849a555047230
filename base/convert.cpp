#include "base/convert.h"

#include <array>

#include "base/convert_floats.h"
#include "base/dtypes.h"

namespace lenslet {

void convert_elements(DType from, const void* x, DType to, void* y, std::int64_t count, SmallRounding rounding) {
  if (convert_floats(from, x, to, y, count)) return;
  if (from == to) from = to = stored_as(to);
  if (is_small_float(from)) {  // looked up: there are 256 elements
    constexpr int elements = 256;
    std::array<float, elements> values;
    std::array<std::uint64_t, elements> converted;
    for (unsigned bits = 0; bits < elements; ++bits) values[bits] = small_value(*small_type(from), bits);
    convert_elements(DType::f32, values.data(), to, converted.data(), elements, rounding);
    return dispatch_bytes(dtype_bytes(to), [&]<typename To>(std::type_identity<To>) {
      const auto* source = static_cast<const std::uint8_t*>(x);
      const auto* table = static_cast<const To*>(static_cast<const void*>(converted.data()));
      auto* target = static_cast<To*>(y);
      for (std::int64_t i = 0; i < count; ++i) target[i] = table[source[i]];
    });
  }
  dispatch(stored_as(from), AllTypes(), [&]<typename From>(std::type_identity<From>) {
    const auto* source = static_cast<const Stored<From>*>(x);
    if (small_type(to) != nullptr) {
      const SmallType type = *small_type(to);
      const Convert<Wide<From>, From> wide;
      auto* target = static_cast<std::uint8_t*>(y);
      for (std::int64_t i = 0; i < count; ++i) target[i] = convert_small(type, wide(source[i]), rounding);
      return;
    }
    dispatch(to, AllTypes(), [&]<typename To>(std::type_identity<To>) {
      const Convert<To, From> f;
      auto* target = static_cast<Stored<To>*>(y);
      for (std::int64_t i = 0; i < count; ++i) target[i] = f(source[i]);
    });
  });
}

}  // namespace lenslet
