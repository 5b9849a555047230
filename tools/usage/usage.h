#pragma once
// The command line's options as data, read from the CLI11 Apps that parse it. So the man page and the shell completions
// (`lenslet generate`) contain every verb and option.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace lenslet::tool {

/// What a shell completes for a value.
enum class Offers { nothing, files, folders, choices };

/// An option, a flag, or a positional argument.
struct Argument {
  std::vector<std::string> names;  ///< "-h", "--help"; a positional argument has one name, "PHOTO"
  std::string help;
  bool takes_value = false;
  std::string type;           ///< the value's type, for people: "FILE", "INT in [0 - 1024]"
  std::string default_value;  ///< empty: not known before the run
  std::string environment;    ///< variable that is read if the option is not given; empty: none
  Offers offers = Offers::nothing;
  std::vector<std::string> choices;
  bool list = false;        ///< several values, separated by commas
  bool repeatable = false;  ///< may be given several times
  bool required = false;
};

struct Usage {
  std::string path;  ///< "lenslet bench conv"
  std::string name;  ///< "conv"
  std::string summary;
  std::vector<std::string> examples = {};
  std::vector<Argument> options = {};    ///< options of the whole command that the verb also takes come last
  std::vector<Argument> positions = {};  ///< in order
  std::vector<Usage> verbs = {};
};

Usage usage_of(const CLI::App& command);
/// Visits `root` and every verb below it, parents first.
void for_each_usage(const Usage& root, const std::function<void(const Usage&)>& visit);
/// The paths of all verbs below `root`, each formatted by `format` ("'{}'"), joined.
std::string verb_paths(const Usage& root, std::string_view format, std::string_view separator);
/// `text` with a backslash before each character of `special`.
std::string escaped(std::string_view text, std::string_view special);

/// Uses roff's man macros.
std::string man_page(const Usage& root);
std::string bash_completion(const Usage& root);
std::string zsh_completion(const Usage& root);
std::string fish_completion(const Usage& root);

}  // namespace lenslet::tool
