#pragma once
// Operators on 8-bit codes: how codes stand for numbers, and the attributes that say so.

#include <cstdint>
#include <string_view>

#include "lenslet/attributes.h"
#include "lenslet/tensor.h"
#include "ops/core/attribute_reader.h"

namespace lenslet {

/// number = (code - zero_point) * scale.
struct Codes {
  float scale = 1;
  std::int32_t zero_point = 0;
};

/// The codes of an output: of `type`, uint8 or int8, and within [least, most], which lie within the type's range.
struct StoredCodes : Codes {
  DType type = DType::u8;
  std::int32_t least = 0, most = 255;
};

/// Appends NAME_scale and NAME_zero_point.
void append_codes(AttributeList& list, std::string_view name, const Codes& codes);
/// The same of y, with stored_type and stored_range.
void append_codes(AttributeList& list, const StoredCodes& y);
/// The reverse. Error(invalid_model) names an attribute whose value makes no sense.
Codes read_codes(AttributeReader& reader, std::string_view name);
StoredCodes read_stored_codes(AttributeReader& reader);
/// The attribute stored_type alone.
DType read_stored_type(AttributeReader& reader);

/// codes[i] of (sums[i] - zeros) * factor, in float32, by y's zero point and range, rounded to nearest even.
inline void codes_of_sums(const std::int32_t* sums, std::int64_t n, std::int32_t zeros, float factor,
                          const StoredCodes& y, std::uint8_t* codes) {
  // Bounds are whole, so that they may come before the rounding, which the addition does: a float between 2^23 and
  // 2^24 has units of one.
  const auto low = static_cast<float>(y.least - y.zero_point), high = static_cast<float>(y.most - y.zero_point);
  for (std::int64_t i = 0; i < n; ++i) {
    const float mean = static_cast<float>(sums[i] - zeros) * factor, least = mean > low ? mean : low;
    const float rounded = ((least < high ? least : high) + 0x1.8p23F) - 0x1.8p23F;
    codes[i] = static_cast<std::uint8_t>(static_cast<std::int32_t>(rounded) + y.zero_point);
  }
}

/// What turns a code of `type` into an unsigned one when it is flipped (xor), which adds 128 to it and its zero point.
constexpr std::uint8_t sign_flip(DType type) { return type == DType::i8 ? 0x80 : 0; }
constexpr std::int32_t flipped_offset(DType type) { return type == DType::i8 ? 128 : 0; }

}  // namespace lenslet
