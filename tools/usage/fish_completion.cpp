#include <fmt/format.h>

#include "tools/usage/usage.h"

namespace lenslet::tool {

namespace {

std::string in_quotes(std::string_view text) { return fmt::format("'{}'", escaped(text, "\\'")); }

std::string offer(const Argument& argument) {
  switch (argument.offers) {
    case Offers::nothing:
      return "-x";
    case Offers::files:
      return "-r -F";
    case Offers::folders:
      return "-x -a '(__fish_complete_directories)'";
    case Offers::choices:
      return fmt::format(fmt::runtime(argument.list ? "-x -a '(__fish_append , {})'" : "-x -a '{}'"),
                         fmt::join(argument.choices, " "));
  }
  return "-x";
}

}  // namespace

std::string fish_completion(const Usage& root) {
  std::string text = fmt::format(R"(# fish completion for lenslet, written by `lenslet generate fish`.
function __lenslet_at
    set -l at lenslet
    for word in (commandline -opc)[2..]
        switch "$at $word"
            case {}
                set at "$at $word"
        end
    end
    test "$at" = "$argv"
end
complete -c lenslet -f
)",
                                 verb_paths(root, "'{}'", " "));
  for_each_usage(root, [&](const Usage& usage) {
    const std::string rule = fmt::format("complete -c lenslet -n '__lenslet_at {}'", usage.path);
    for (const Usage& verb : usage.verbs)
      text += fmt::format("{} -a {} -d {}\n", rule, verb.name, in_quotes(verb.summary));
    for (const Argument& position : usage.positions) text += fmt::format("{} {}\n", rule, offer(position));
    for (const Argument& option : usage.options) {
      text += rule;
      for (const std::string& name : option.names)
        text += name[1] == '-' ? " -l " + name.substr(2) : " -s " + name.substr(1);
      text += fmt::format("{} -d {}\n", option.takes_value ? " " + offer(option) : "", in_quotes(option.help));
    }
  });
  return text;
}

}  // namespace lenslet::tool
