#pragma once
// Comma-separated values, RFC 4180 but for the end of a line, which is a line feed alone.

#include <span>
#include <string>

namespace lenslet::tool {

/// A line on stdout; fields are quoted where they have to be.
void print_csv_line(std::span<const std::string> fields);

}  // namespace lenslet::tool
