#pragma once
// Element type lists shared by several operators.

#include <cstdint>

#include "base/dtypes.h"

namespace lenslet {

using FloatTypes = Types<float>;
using RealTypes = Types<float, double>;
using SignedTypes = Types<float, double, std::int8_t, std::int16_t, std::int32_t, std::int64_t>;
using IntegerTypes = Types<std::int8_t, std::uint8_t, std::int16_t, std::uint16_t, std::int32_t, std::uint32_t,
                           std::int64_t, std::uint64_t>;
using NumberTypes = Types<float, double, std::int8_t, std::uint8_t, std::int16_t, std::uint16_t, std::int32_t,
                          std::uint32_t, std::int64_t, std::uint64_t>;
using PowTypes = Types<float, double, std::int32_t, std::int64_t>;
using ExponentTypes = Types<float, double, std::int32_t, std::int64_t, std::uint32_t, std::uint64_t>;
using EqualTypes = Types<float, double, std::int8_t, std::uint8_t, std::int16_t, std::uint16_t, std::int32_t,
                         std::uint32_t, std::int64_t, std::uint64_t, bool>;

}  // namespace lenslet
