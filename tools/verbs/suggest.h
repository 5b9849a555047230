#pragma once
// "did you mean" for mistyped names.

#include <span>
#include <string>
#include <string_view>

namespace lenslet::tool {

/// " (did you mean NAME?)": the one of `names` that is at most two typing errors from `mistyped`; "" if there is none.
std::string did_you_mean(std::string_view mistyped, std::span<const std::string> names);

}  // namespace lenslet::tool
