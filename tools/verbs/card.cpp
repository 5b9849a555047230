// lenslet card: prints the card that classify would use for a model, for editing.

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "lenslet/card.h"
#include "lenslet/classifier.h"
#include "lenslet/error.h"
#include "lenslet/tensor_file.h"
#include "photos/cards/write_card.h"
#include "tools/verbs/common_options.h"
#include "tools/verbs/terminal.h"
#include "tools/verbs/verbs.h"

namespace lenslet::tool {

namespace {

namespace fs = std::filesystem;

struct Options {
  std::string model, output;
  bool force = false;
};

void card(const Options& options) {
  if (!options.output.empty() && !options.force && fs::exists(fs::symlink_status(options.output)))
    throw Error(ErrorKind::io, "is there already (--force writes over it)", options.output);
  const Model model = Model::load(options.model);
  const FoundCard found = card_of(model, options.model);
  if (found.found_by == FoundBy::nothing) check_classifies(model, found.card);
  const fs::path beside = options.output.empty() ? options.model : options.output;
  const std::string text = photos::card_text(found.card, model, options.model, beside.parent_path());
  if (options.output.empty())
    fmt::print("{}", text);
  else
    write_file(options.output, std::as_bytes(std::span(text)));
  note(found.found_by == FoundBy::nothing
           ? std::string("nothing is known of this model: what stands there is assumed")
           : fmt::format("from {} ({})", found.file.string(), to_string(found.found_by)));
}

}  // namespace

void add_card(CLI::App& app, ExitCode& result) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("card", "Write the model card that classify would use, to be edited");
  verb->add_option("MODEL", options->model, "ONNX file")->required();
  CLI::Option* output =
      verb->add_option("-o,--output", options->output,
                       "File to write, best NAME.card.json beside NAME.onnx; default: standard output")
          ->check(not_empty());
  verb->add_flag("--force", options->force, "Write over the file")->needs(output);
  add_examples(*verb,
               "lenslet card net.onnx\n"
               "lenslet card net.onnx -o net.card.json");
  verb->callback([options, &result] {
    card(*options);
    result = exit_ok;
  });
}

}  // namespace lenslet::tool
