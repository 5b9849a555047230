#pragma once
// Formats for copies by the tensor copy engine, and for vectors of 16 bytes.

#include <cstdint>

#include "lenslet/tensor.h"

namespace lenslet {

/// Channels, rounded up to 16 bytes.
std::int64_t aligned_channels(std::int64_t channels, DType dtype);
/// nhwc whose pixels begin at multiples of 16 bytes: "nhwc/104" of 100 halves, plain nhwc where channels fill them.
/// What lies in the room is anything: whoever stores such a value may write there, and there is room behind the last
/// pixel, too; nothing that is read may depend on it.
Format aligned_nhwc(std::int64_t channels, DType dtype);
/// May pixels lie further apart than this format has them: nhwc without blocks and halo?
bool may_have_pitch(const Format& format);

}  // namespace lenslet
