#include "tools/verbs/csv.h"

#include <fmt/format.h>
#include <unistd.h>

#include "tools/verbs/terminal.h"

namespace lenslet::tool {

std::string csv_line(const std::vector<std::string>& fields, std::FILE* stream) {
  const bool at_terminal = isatty(fileno(stream)) == 1;
  std::string line;
  for (const std::string& given : fields) {
    std::string field = at_terminal ? printable(given) : given;
    if (field.find_first_of(",\"\r\n") != std::string::npos) {
      for (std::size_t at = 0; (at = field.find('"', at)) != std::string::npos; at += 2) field.insert(at, 1, '"');
      field = fmt::format("\"{}\"", field);
    }
    line += (&given == fields.data() ? "" : ",") + field;
  }
  return line + '\n';
}

std::vector<std::string> csv_fields(std::string_view line) {
  std::vector<std::string> fields(1);
  if (line.ends_with('\n')) line.remove_suffix(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == ',' && !quoted)
      fields.emplace_back();
    else if (line[i] != '"')
      fields.back() += line[i];
    else if (quoted && line.substr(i + 1).starts_with('"'))
      fields.back() += line[i++];
    else
      quoted = !quoted;
  }
  return fields;
}

}  // namespace lenslet::tool
