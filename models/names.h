#pragma once
// Checks names from model files once, since they appear in messages, tables, JSON and file names.

#include <string_view>

namespace lenslet {

/// `name` itself when it is valid UTF-8 without control characters and at most limits::name_bytes long.
/// Error(limit) or Error(invalid_model) otherwise; `what` says whose name it is ("a node").
std::string_view checked_name(std::string_view name, std::string_view what);

/// Why a text cannot be shown: "holds a control character", "is not UTF-8"; empty if it can.
std::string_view why_not_shown(std::string_view text) noexcept;

/// Well-formed UTF-8 (no overlong forms, no surrogates, at most U+10FFFF)?
bool is_utf8(std::string_view text) noexcept;

}  // namespace lenslet
