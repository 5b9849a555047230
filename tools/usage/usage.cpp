#include "tools/usage/usage.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <sstream>

#include "lenslet/model.h"

namespace lenslet::tool {

namespace {

// The members of "{a,b}" (CLI::IsMember), else nothing.
std::vector<std::string> members(const std::string& type) {
  std::vector<std::string> names;
  if (type.size() < 2 || type.front() != '{' || type.back() != '}') return names;
  std::istringstream list(type.substr(1, type.size() - 2));
  for (std::string name; std::getline(list, name, ',');) names.push_back(name);
  return names;
}

// Values that are known although CLI11 does not check them.
std::vector<std::string> known_values(std::string_view verb, std::string_view option) {
  if (option == "--device") return {"auto", "cpu", "cuda"};
  if (option == "--precision") return {"fp32", "tf32", "fp16", "bf16"};
  if (option != "--conv-algorithm" && option != "--algorithm") return {};
  std::vector<std::string> names = conv_algorithm_names("cpu");
  for (const std::string& name : conv_algorithm_names("cuda"))
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  if (verb == "verify") names.emplace_back("all");
  return names;
}

// What text without choices stands for: nearly always files.
Offers kind_of_text(std::string_view name) {
  if (name == "--output-dir" || name == "CASE_DIR") return Offers::folders;
  const bool own_words = name == "--config" || name == "--shape" || name == "--layer";
  return own_words ? Offers::nothing : Offers::files;
}

Argument read(const CLI::App& verb, const CLI::Option& option) {
  Argument argument;
  for (const std::string& name : option.get_snames()) argument.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) argument.names.push_back("--" + name);
  if (argument.names.empty()) argument.names.push_back(option.get_name(true));
  argument.help = option.get_description();
  argument.takes_value = option.get_items_expected_max() != 0;
  argument.required = option.get_required();
  argument.repeatable = option.get_items_expected_max() >= CLI::detail::expected_max_vector_size;
  if (!argument.takes_value) return argument;

  const std::string type = option.get_type_name();  // "TEXT", "INT:INT in [0 - 9]": the validator's text comes last
  const std::string_view name = argument.names.back();
  argument.type = type.substr(type.find(':') + 1);
  argument.default_value = option.get_default_str();
  argument.environment = option.get_envname();
  argument.list = option.get_delimiter() == ',';
  argument.choices = members(argument.type);
  if (argument.choices.empty()) argument.choices = known_values(verb.get_name(), name);
  if (!argument.choices.empty())
    argument.offers = Offers::choices;
  else if (type == "TEXT")
    argument.offers = kind_of_text(name);
  if (argument.offers == Offers::choices) argument.type = "NAME";
  if (argument.offers == Offers::files) argument.type = "FILE";
  if (argument.offers == Offers::folders) argument.type = "FOLDER";
  return argument;
}

// The lines below "Examples:".
std::vector<std::string> examples(const CLI::App& verb) {
  std::istringstream footer(verb.get_footer());
  std::vector<std::string> lines;
  for (std::string line; std::getline(footer, line);)
    if (line.rfind("  ", 0) == 0) lines.push_back(line.substr(2));
  return lines;
}

Usage read(const CLI::App& app, const std::string& above, const std::vector<Argument>& everywhere) {
  Usage usage{.path = above + app.get_name(), .name = app.get_name(), .summary = app.get_description()};
  usage.examples = examples(app);
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;  // hidden
    (option->get_positional() ? usage.positions : usage.options).push_back(read(app, *option));
  }
  usage.options.insert(usage.options.end(), everywhere.begin(), everywhere.end());
  return usage;
}

void read_verbs(const CLI::App& app, Usage& usage, const std::vector<Argument>& everywhere) {
  for (const CLI::App* verb : app.get_subcommands({})) {
    if (verb->get_group().empty()) continue;
    usage.verbs.push_back(read(*verb, usage.path + " ", everywhere));
    read_verbs(*verb, usage.verbs.back(), everywhere);
  }
}

}  // namespace

Usage usage_of(const CLI::App& command) {
  Usage root = read(command, "", {});
  const auto own = [&](const CLI::Option* option) {
    return option != command.get_help_ptr() && option != command.get_help_all_ptr() &&
           option != command.get_version_ptr();
  };
  std::vector<Argument> everywhere;
  if (command.get_fallthrough())
    for (const CLI::Option* option : command.get_options(own)) everywhere.push_back(read(command, *option));
  read_verbs(command, root, everywhere);
  return root;
}

void for_each_usage(const Usage& root, const std::function<void(const Usage&)>& visit) {
  visit(root);
  for (const Usage& verb : root.verbs) for_each_usage(verb, visit);
}

std::string verb_paths(const Usage& root, std::string_view format, std::string_view separator) {
  std::vector<std::string> paths;
  for_each_usage(root, [&](const Usage& usage) {
    if (&usage != &root) paths.push_back(fmt::format(fmt::runtime(format), usage.path));
  });
  return fmt::format("{}", fmt::join(paths, separator));
}

std::string escaped(std::string_view text, std::string_view special) {
  std::string result;
  for (const char letter : text) {
    if (special.find(letter) != std::string_view::npos) result += '\\';
    result += letter;
  }
  return result;
}

}  // namespace lenslet::tool
