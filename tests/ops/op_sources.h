#pragma once
// Finds the file that defines an operator, from the rows of the families in the sources.

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <string>

namespace lenslet::test {

/// By operator name: "conv/conv.cpp", relative to ops/. It is the file of the object in the operator's row; for rows
/// made from a list of kinds, the list's file.
inline std::map<std::string, std::string> op_sources() {
  const std::filesystem::path root(LENSLET_SOURCE_DIR "/ops");
  std::map<std::string, std::string> texts;  // by file
  for (const auto& family : std::filesystem::directory_iterator(root))
    if (family.is_directory())
      for (const auto& entry : std::filesystem::directory_iterator(family)) {
        const std::string name = entry.path().lexically_relative(root).generic_string();
        if (!name.ends_with(".cpp") && !name.ends_with(".h")) continue;
        std::ifstream file(entry.path(), std::ios::binary);
        texts[name] = {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
      }
  const auto each = [](const std::string& text, const char* pattern, const auto& found) {
    const std::regex regex(pattern);
    for (auto it = std::sregex_iterator(text.begin(), text.end(), regex); it != std::sregex_iterator(); ++it)
      found(*it);
  };
  std::map<std::string, std::string> parts, sources;
  for (const auto& [name, text] : texts)
    each(text, R"(\nOpParts (\w+)\(\) \{)", [&, &name = name](const std::smatch& part) { parts[part[1]] = name; });
  for (const auto& [name, text] : texts) {
    const auto here = [&, &name = name](const std::smatch& row) { sources[row[1]] = name; };
    if (name.ends_with("/rows.cpp"))
      each(text, R"re(\{"(\w+)", (?:"|own)[^{}]*?(\w+)\(\))re",
           [&](const std::smatch& row) { sources[row[1]] = parts.at(row[2]); });
    else if (text.find("_rows() {") != std::string::npos)
      each(text, R"re(\{"(\w+)",\s+"",\s+\d)re", here);
    else
      each(text, R"(\n  KIND\((\w+),)", here);
  }
  return sources;
}

}  // namespace lenslet::test
