// lenslet generate: the man page and shell completions, made from the options.

#include <fmt/format.h>

#include <map>
#include <memory>
#include <string>

#include "tools/usage/usage.h"
#include "tools/verbs/common_options.h"
#include "tools/verbs/verbs.h"

namespace lenslet::tool {

void add_generate(CLI::App& app, ExitCode& result) {
  static const std::map<std::string, std::string (*)(const Usage&)> writers{
      {"bash", bash_completion}, {"fish", fish_completion}, {"man", man_page}, {"zsh", zsh_completion}};
  auto what = std::make_shared<std::string>();
  CLI::App* verb = app.add_subcommand("generate", "Print the man page, or the completion of a shell");
  verb->add_option("WHAT", *what, "The man page, or a shell")->required()->check(CLI::IsMember(&writers));
  add_examples(*verb,
               "lenslet generate man > lenslet.1\n"
               "source <(lenslet generate bash)");
  verb->callback([&app, what, &result] {
    fmt::print("{}", writers.at(*what)(usage_of(app)));
    result = exit_ok;
  });
}

}  // namespace lenslet::tool
