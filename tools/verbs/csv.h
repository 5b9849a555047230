#pragma once
// Comma-separated values, RFC 4180 but for the end of a line, which is a line feed alone.

#include <string>
#include <vector>

namespace lenslet::tool {

/// A line on stdout; fields are quoted where they have to be. At a terminal they are printable(), which names could
/// steer otherwise; a program gets them as they are.
void print_csv_line(const std::vector<std::string>& fields);

}  // namespace lenslet::tool
