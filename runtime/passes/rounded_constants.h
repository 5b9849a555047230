#pragma once
// Which numbers may be rounded to 16 bits.

namespace lenslet {

/// The most that a constant may change, as a share of it: beyond that it is a denormal or out of range.
inline constexpr float most_rounding = 0x1p-8F;

}  // namespace lenslet
