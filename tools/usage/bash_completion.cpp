#include <fmt/format.h>

#include <map>

#include "tools/usage/usage.h"

namespace lenslet::tool {

namespace {

std::string offer(const Argument& argument) {
  switch (argument.offers) {
    case Offers::nothing:
      return ":";
    case Offers::files:
      return "_lenslet_files -f";
    case Offers::folders:
      return "_lenslet_files -d";
    case Offers::choices:
      return fmt::format("_lenslet_words '{}'", fmt::join(argument.choices, " "));
  }
  return ":";
}

}  // namespace

std::string bash_completion(const Usage& root) {
  std::string values, words;
  std::map<std::string, std::string> patterns;  // what is completed, by the options before it
  for_each_usage(root, [&](const Usage& usage) {
    std::string options, verbs;
    for (const Usage& verb : usage.verbs) verbs += (verbs.empty() ? "" : " ") + verb.name;
    for (const Argument& option : usage.options)
      for (const std::string& name : option.names) {
        options += (options.empty() ? "" : " ") + name;
        if (!option.takes_value) continue;
        std::string& pattern = patterns[offer(option)];
        pattern += fmt::format("{}'{} {}'", pattern.empty() ? "" : " | ", usage.path, name);
      }
    words += fmt::format("    '{}|-'*) _lenslet_words '{}' ;;\n    '{}|'*)", usage.path, options, usage.path);
    if (!usage.positions.empty()) words += " " + offer(usage.positions.back());
    if (!verbs.empty()) words += fmt::format("{} _lenslet_words '{}'", usage.positions.empty() ? "" : ";", verbs);
    words += " ;;\n";
  });
  for (const auto& [offered, pattern] : patterns) values += fmt::format("    {}) {} ;;\n", pattern, offered);
  return fmt::format(R"(# bash completion for lenslet, written by `lenslet generate bash`.
# $current is what is being typed, of a list what follows the last comma.
_lenslet_words() {{
  local before=
  [[ $current == *,* ]] && before=${{current%,*}},
  mapfile -t -O "${{#COMPREPLY[@]}}" COMPREPLY < <(compgen -P "$before" -W "$1" -- "${{current##*,}}")
}}
_lenslet_files() {{
  compopt -o filenames 2>/dev/null
  mapfile -t COMPREPLY < <(compgen "$1" -- "$current")
}}
_lenslet() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} option=${{COMP_WORDS[COMP_CWORD - 1]}} at=lenslet word
  COMPREPLY=()
  # bash takes --option=value apart.
  if [[ $current == = ]]; then
    current=
  elif [[ $option == = ]]; then
    option=${{COMP_WORDS[COMP_CWORD - 2]}}
  fi
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case "$at $word" in
    {}) at+=" $word" ;;
    esac
  done
  case "$at $option" in
{}    *)
    case "$at|$current" in
{}    esac
    ;;
  esac
}}
complete -F _lenslet lenslet
)",
                     verb_paths(root, "'{}'", " | "), values, words);
}

}  // namespace lenslet::tool
