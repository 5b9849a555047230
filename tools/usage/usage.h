#pragma once
// What the command line understands, as data: read off the tree of CLI11's Apps that parses it, so that the man page
// and the shells' completions (`lenslet generate`) hold every verb and every option.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace lenslet::tool {

/// What a shell offers for a value.
enum class Offers { nothing, files, folders, choices };

/// An option, a flag, or an argument by position.
struct Argument {
  std::vector<std::string> names;  ///< "-h", "--help"; of a position its one name, "PHOTO"
  std::string help;
  bool takes_value = false;
  std::string type;           ///< of a value, for people: "FILE", "INT in [0 - 1024]"
  std::string default_value;  ///< empty: none that is known before the run
  std::string environment;    ///< the variable that is read where the option is not given; empty: none
  Offers offers = Offers::nothing;
  std::vector<std::string> choices;
  bool list = false;        ///< several values, separated by commas
  bool repeatable = false;  ///< may be given, or may stand, several times
  bool required = false;
};

struct Usage {
  std::string path;  ///< "lenslet bench conv"
  std::string name;  ///< "conv"
  std::string summary;
  std::vector<std::string> examples = {};
  std::vector<Argument> options = {};    ///< those of the whole command that a verb takes, too, come last
  std::vector<Argument> positions = {};  ///< in their order
  std::vector<Usage> verbs = {};
};

Usage usage_of(const CLI::App& command);
/// `root` and every verb below it, parents first.
void for_each_usage(const Usage& root, const std::function<void(const Usage&)>& visit);
/// The paths of all verbs below `root`, each through `format` ("'{}'"), joined.
std::string verb_paths(const Usage& root, std::string_view format, std::string_view separator);
/// `text` with a backslash before each of `special`.
std::string escaped(std::string_view text, std::string_view special);

/// In roff's man macros.
std::string man_page(const Usage& root);
std::string bash_completion(const Usage& root);
std::string zsh_completion(const Usage& root);
std::string fish_completion(const Usage& root);

}  // namespace lenslet::tool
