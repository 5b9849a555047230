#include "tools/verbs/csv.h"

#include <fmt/format.h>
#include <unistd.h>

#include "tools/verbs/terminal.h"

namespace lenslet::tool {

void print_csv_line(const std::vector<std::string>& fields) {
  static const bool at_terminal = isatty(STDOUT_FILENO) == 1;
  std::string line;
  for (const std::string& given : fields) {
    std::string field = at_terminal ? printable(given) : given;
    if (field.find_first_of(",\"\r\n") != std::string::npos) {
      for (std::size_t at = 0; (at = field.find('"', at)) != std::string::npos; at += 2) field.insert(at, 1, '"');
      field = fmt::format("\"{}\"", field);
    }
    line += (&given == fields.data() ? "" : ",") + field;
  }
  fmt::print("{}\n", line);
}

}  // namespace lenslet::tool
