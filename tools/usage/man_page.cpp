// The man page lenslet(1).

#include <fmt/format.h>

#include <algorithm>

#include "lenslet/version.h"
#include "tools/usage/usage.h"
#include "tools/verbs/exit_codes.h"

namespace lenslet::tool {

namespace {

// Escapes text for a line of its own. Dashes are literal; a leading dot or quote would be a request.
std::string roff(std::string_view text) {
  std::string result;
  for (const char letter : text) {
    if (letter == '\\')
      result += "\\(rs";
    else if (letter == '-')
      result += "\\-";
    else
      result += letter;
  }
  if (!result.empty() && (result.front() == '.' || result.front() == '\'')) result.insert(0, "\\&");
  return result;
}

std::string written(const Argument& position) {
  const std::string text = fmt::format("\\fI{}\\fR{}", roff(position.names.front()), position.repeatable ? "..." : "");
  return position.required ? text : fmt::format("[{}]", text);
}

std::string synopsis(const Usage& usage) {
  std::string text = fmt::format("\\fB{}\\fR", roff(usage.path));
  if (!usage.options.empty()) text += " [\\fIOPTION\\fR]...";
  for (const Argument& position : usage.positions) text += " " + written(position);
  if (!usage.verbs.empty()) text += usage.positions.empty() ? " \\fIVERB\\fR ..." : " | \\fIVERB\\fR ...";
  return text;
}

std::string entry(const Argument& argument) {
  std::string text = ".TP\n";
  for (std::size_t i = 0; i < argument.names.size(); ++i)
    text += fmt::format("{}\\fB{}\\fR", i == 0 ? "" : ", ", roff(argument.names[i]));
  if (argument.takes_value && argument.names.front().front() == '-')
    text += fmt::format(" \\fI{}\\fR", roff(argument.type));
  text += fmt::format("\n{}", roff(argument.help));
  if (!argument.choices.empty() && argument.help.find(argument.choices.back()) == std::string::npos)
    text += roff(fmt::format(": {}", fmt::join(argument.choices, ", ")));
  if (!argument.environment.empty()) text += fmt::format(". Read from {}, where set", argument.environment);
  if (!argument.default_value.empty()) text += fmt::format(" [default: {}]", roff(argument.default_value));
  return text + "\n";
}

// Omits options that `above` has, too.
std::string entries(const Usage& usage, const std::vector<Argument>& above = {}) {
  std::string text;
  for (const Argument& position : usage.positions) text += entry(position);
  for (const Argument& option : usage.options)
    if (std::none_of(above.begin(), above.end(), [&](const Argument& known) { return known.names == option.names; }))
      text += entry(option);
  return text;
}

std::string examples(const Usage& usage) {
  if (usage.examples.empty()) return "";
  std::string text = ".PP\nExamples:\n.PP\n.RS\n.EX\n";
  for (const std::string& line : usage.examples) text += roff(line) + "\n";
  return text + ".EE\n.RE\n";
}

}  // namespace

std::string man_page(const Usage& root) {
  const std::string summary = root.summary.substr(root.summary.find(": ") + 2);  // "lenslet: runs ..."
  std::string text = fmt::format(
      ".TH LENSLET 1 \"\" \"lenslet {}\" \"User Commands\"\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n{}\n.SH OPTIONS\n{}"
      ".PP\nEvery verb takes these, too, but for \\fB\\-\\-version\\fR.\n.SH VERBS\n",
      LENSLET_VERSION, root.name, roff(summary), synopsis(root), entries(root));
  for_each_usage(root, [&](const Usage& usage) {
    if (&usage == &root) return;
    text += fmt::format(".SS {}\n{}\n.PP\n{}.\n{}{}", roff(usage.path.substr(root.path.size() + 1)), synopsis(usage),
                        roff(usage.summary), entries(usage, root.options), examples(usage));
  });
  text += ".SH EXIT STATUS\n";
  for (const ExitCodeMeaning& row : exit_code_meanings)
    text += fmt::format(".TP\n.B {}\n{}\n", int{row.code}, roff(row.meaning));
  return text;
}

}  // namespace lenslet::tool
