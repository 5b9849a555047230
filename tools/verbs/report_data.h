#pragma once
// The data of a page of `lenslet report` (docs/report.md).

#include <nlohmann/json.hpp>
#include <string>

namespace lenslet::tool {

inline constexpr const char* report_schema = "lenslet report";
inline constexpr int report_version = 1;

/// The runs in a file that `lenslet layers --json` (one) or `lenslet report --json` printed. Error(io), and
/// Error(invalid_argument) naming the member at fault.
nlohmann::ordered_json read_report_runs(const std::string& file);

/// JSON in ASCII that may stand inside <script>: no '<', '>' or '&'. Bytes of names that are not UTF-8 become U+FFFD.
std::string embedded(const nlohmann::ordered_json& data);

}  // namespace lenslet::tool
