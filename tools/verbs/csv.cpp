#include "tools/verbs/csv.h"

#include <fmt/format.h>

namespace lenslet::tool {

void print_csv_line(std::span<const std::string> fields) {
  std::string line;
  for (const std::string& field : fields) {
    if (&field != fields.data()) line += ',';
    if (field.find_first_of(",\"\r\n") == std::string::npos) {
      line += field;
      continue;
    }
    line += '"';
    for (const char c : field) line += c == '"' ? "\"\"" : std::string(1, c);
    line += '"';
  }
  fmt::print("{}\n", line);
}

}  // namespace lenslet::tool
