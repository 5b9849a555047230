#include <fmt/format.h>

#include "tools/usage/usage.h"

namespace lenslet::tool {

namespace {

// Quotes for '...'.
std::string in_quotes(const std::string& text) {
  std::string result;
  for (const char letter : text) result += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  return result;
}

std::string offer(const Argument& argument) {
  switch (argument.offers) {
    case Offers::nothing:
      return " ";
    case Offers::files:
      return "_files";
    case Offers::folders:
      return "_files -/";
    case Offers::choices:
      return fmt::format(fmt::runtime(argument.list ? "_sequence compadd - {}" : "({})"),
                         fmt::join(argument.choices, " "));
  }
  return " ";
}

std::string option_spec(const Argument& option, const std::string& name) {
  const std::string value =
      option.takes_value ? fmt::format(":{}:{}", escaped(option.type, "\\:"), offer(option)) : std::string();
  return fmt::format("'{}{}{}[{}]{}'", option.repeatable ? "*" : "", name,
                     name[1] == '-' && option.takes_value ? "=" : "", in_quotes(escaped(option.help, "\\[]:")),
                     in_quotes(value));
}

}  // namespace

std::string zsh_completion(const Usage& root) {
  std::string specs;
  for_each_usage(root, [&](const Usage& usage) {
    specs += fmt::format("  ('{}')\n", usage.path);
    if (!usage.verbs.empty()) specs += "    verbs=(\n";
    for (const Usage& verb : usage.verbs)
      specs += fmt::format("      '{}:{}'\n", verb.name, in_quotes(escaped(verb.summary, "\\:")));
    if (!usage.verbs.empty()) specs += "    )\n";
    specs += "    _arguments -S :";
    for (const Argument& option : usage.options)
      for (const std::string& name : option.names) specs += " \\\n      " + option_spec(option, name);
    if (!usage.verbs.empty())
      specs += fmt::format(" \\\n      '1: :{{_describe -t verbs verb verbs{}}}'",
                           usage.positions.empty() ? "" : "; " + offer(usage.positions.front()));
    else
      for (const Argument& position : usage.positions)
        specs += fmt::format(" \\\n      '{}:{}:{}'", position.repeatable ? "*" : "", position.names.front(),
                             offer(position));
    specs += "\n    ;;\n";
  });
  return fmt::format(R"(#compdef lenslet
# zsh completion for lenslet, written by `lenslet generate zsh`.
_lenslet() {{
  local at=lenslet i last=1
  local -a verbs
  for ((i = 2; i < CURRENT; ++i)); do
    case "$at $words[i]" in
    ({}) at+=" $words[i]"; last=$i ;;
    esac
  done
  shift $((last - 1)) words
  ((CURRENT -= last - 1))
  case $at in
{}  esac
}}
if [[ $funcstack[1] == _lenslet ]]; then _lenslet "$@"; else compdef _lenslet lenslet; fi
)",
                     verb_paths(root, "'{}'", "|"), specs);
}

}  // namespace lenslet::tool
