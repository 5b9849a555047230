#pragma once
// Comma-separated values as in RFC 4180, except that lines end with a line feed only.

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace lenslet::tool {

/// A line for `stream`, with fields quoted as needed. For a terminal they are made printable(), since names could
/// contain control sequences; other programs get them unchanged.
std::string csv_line(const std::vector<std::string>& fields, std::FILE* stream);
/// The fields of a line that csv_line() made for a file.
std::vector<std::string> csv_fields(std::string_view line);

}  // namespace lenslet::tool
