#pragma once
// Comma-separated values as in RFC 4180, except that lines end with a line feed only.

#include <string>
#include <vector>

namespace lenslet::tool {

/// Prints a line on stdout with fields quoted as needed. At a terminal they are made printable(), since names could
/// contain control sequences; other programs get them unchanged.
void print_csv_line(const std::vector<std::string>& fields);

}  // namespace lenslet::tool
