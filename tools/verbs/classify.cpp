// lenslet classify: names what photos show.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lenslet/card.h"
#include "lenslet/classifier.h"
#include "lenslet/error.h"
#include "lenslet/photos.h"
#include "lenslet/picture.h"
#include "tools/measuring/samples.h"
#include "tools/verbs/classify_output.h"
#include "tools/verbs/common_options.h"
#include "tools/verbs/preparation.h"
#include "tools/verbs/terminal.h"
#include "tools/verbs/verbs.h"

namespace lenslet::tool {

namespace {

struct Options {
  std::vector<std::string> photos;
  std::string model, labels;
  PreparationOptions preparation;
  std::size_t top = 5;
  std::string format = "table";
  bool recursive = false;
  PlanOptions plan;
};

struct Setup {
  std::filesystem::path model_file;
  std::optional<FoundCard> card;  ///< from --card
};

/// --model, else the model that --card names, else the default one.
Setup find_model(const Options& options) {
  Setup setup;
  const std::string& card = options.preparation.card;
  if (!card.empty()) setup.card = FoundCard{read_card(card), card, FoundBy::option};
  if (!options.model.empty())
    setup.model_file = options.model;
  else if (setup.card && !setup.card->card.model.empty())
    setup.model_file = std::filesystem::path(card).parent_path() / setup.card->card.model;
  else
    setup.model_file = default_model();
  return setup;
}

/// Fills batches in the order of the photos. A photo that fails is recorded and takes no slot.
class Run {
 public:
  Run(Classifier& classifier, std::size_t top) : classifier_(classifier), top_(top) {}

  /// `photo` must stay at its address until it is done.
  void add(PhotoResult& photo) {
    bool decoded = false;
    try {
      const Stopwatch decoding;
      const Picture picture = read_image(photo.file);
      photo.decode_ms = decoding.ms();
      decoded = true;
      const Stopwatch preparing;
      classifier_.prepare(picture, static_cast<std::int64_t>(slots_.size()));
      photo.preprocess_ms = preparing.ms();
    } catch (const Error& error) {
      // Not the photo's fault: a device error, or no memory for pixels within the limits.
      if (error.kind() == ErrorKind::device || (decoded && error.kind() == ErrorKind::limit)) throw;
      photo.error = error.context() == photo.file ? error.message() : error.what();
      photo.done = true;
      return;
    }
    slots_.push_back(&photo);
    if (static_cast<std::int64_t>(slots_.size()) == classifier_.batch()) flush();
  }

  void flush() {
    if (slots_.empty()) return;
    const Stopwatch running;
    classifier_.run();
    const double ms = running.ms() / static_cast<double>(slots_.size());
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
      slots_[slot]->inference_ms = ms;
      slots_[slot]->done = true;
      slots_[slot]->top = classifier_.top(static_cast<std::int64_t>(slot), top_);
      slots_[slot]->probabilities = classifier_.bound().probabilities;
    }
    slots_.clear();
  }

 private:
  Classifier& classifier_;
  std::size_t top_;
  std::vector<PhotoResult*> slots_;
};

nlohmann::ordered_json header(const std::filesystem::path& model_file, const FoundCard& found,
                              const std::string& device, const PlanOptions& plan) {
  nlohmann::ordered_json card;  // null for a default card
  if (found.found_by != FoundBy::nothing)
    card = {{"path", found.file.string()}, {"found_by", to_string(found.found_by)}};
  return {{"model", model_file.string()},
          {"device", device},
          {"preparation", describe(found.card.spec)},
          {"assumed", found.found_by == FoundBy::nothing},
          {"card", card},
          {"machine", provenance(plan)}};
}

ExitCode classify(const Options& options) {
  for (const std::string& photo : options.photos)
    if (photo.ends_with(".onnx") && std::filesystem::exists(photo))
      throw Error(ErrorKind::invalid_argument, "this is a model, no photo: give it by --model", photo);
  const std::vector<std::string> photos = list_photos(options.photos, options.recursive);
  Setup setup = find_model(options);
  const Model model = Model::load(setup.model_file);
  FoundCard found = setup.card ? *std::move(setup.card) : card_of(model, setup.model_file);
  apply(options.preparation, found.card.spec);
  say_source(found, setup.model_file);
  PlanOptions plan = options.plan;
  const BoundCard bound = bind_card(found.card, model);
  plan.batch = std::min<std::int64_t>(plan.batch, static_cast<std::int64_t>(photos.size()));
  // A fixed batch size is kept; empty slots are computed for nothing.
  if (const std::int64_t fixed = model.inputs()[bound.input].dims[0]; fixed > 1) plan.batch = fixed;
  std::optional<std::filesystem::path> labels;
  if (!options.labels.empty()) labels = options.labels;
  if (!labels) {
    labels = assumed_labels(found.card, bound);
    if (labels) note("1000 classes without names: assuming ImageNet's (--labels names others)");
  }
  print_device_note(plan);
  Classifier classifier(model, found.card, labels, plan);
  note_refused_algorithms(classifier.plan(), plan);
  if (const std::string& remark = classifier.bound().remark; !remark.empty()) note(remark);
  const std::string device = classifier.plan().device;
  const auto printer = make_result_printer(options.format, header(setup.model_file, found, device, plan), device);

  std::vector<PhotoResult> results(photos.size());
  Run run(classifier, options.top);
  bool failed = false;
  std::size_t printed = 0;
  const auto print_done = [&] {
    for (; printed < results.size() && results[printed].done; ++printed)
      printer->add(std::exchange(results[printed], {}));
  };
  {
    Progress progress(photos.size(), options.format == "table" || options.format == "json");
    for (std::size_t i = 0; i < photos.size(); ++i) {
      progress.update(i);
      results[i].file = photos[i];
      run.add(results[i]);
      if (!results[i].error.empty()) {
        failed = true;
        progress.clear();
        say(fmt::format("{}: {}", photos[i], results[i].error));
      }
      if (options.format == "jsonl" || options.format == "csv") print_done();
    }
    run.flush();
  }
  print_done();
  printer->finish();
  return failed ? exit_failed : exit_ok;
}

}  // namespace

void add_classify(CLI::App& app, ExitCode& result) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("classify", "Say what is in photos (JPEG, PNG, BMP, PNM, WebP)");
  verb->add_option("PHOTO", options->photos, "Photos, or folders of photos; - is standard input")
      ->required()
      ->check(not_empty());
  verb->add_option("--model", options->model,
                   "ONNX file; default: EfficientNet-Lite0 as tools/quickstart.sh fetches it");
  add_preparation_options(*verb, options->preparation);
  verb->add_option("--labels", options->labels, "Class names, one a line; default: what the card names");
  verb->add_option("--top", options->top, "How many classes to show")
      ->transform(whole_number(1, 1000000))
      ->capture_default_str();
  verb->add_option("--batch", options->plan.batch, "How many photos go through the model at once")
      ->transform(whole_number(1, 1024))
      ->capture_default_str();
  add_plan_options(*verb, options->plan);
  verb->add_flag("--recursive", options->recursive,
                 "Look into the folders in a folder, too; links to folders are left");
  CLI::Option* format =
      verb->add_option("--format", options->format,
                       "table; json: one document; jsonl: a line of JSON for each photo when it is "
                       "done; csv: a row for each photo and class")
          ->check(CLI::IsMember(std::vector<std::string>(std::begin(result_formats), std::end(result_formats))))
          ->capture_default_str();
  verb->add_flag_callback(
          "--json", [options] { options->format = "json"; }, "As --format json")
      ->excludes(format);
  add_examples(
      *verb,
      "lenslet classify cat.jpg\n"
      "lenslet classify --top 3 --batch 8 --json holiday/\n"
      "lenslet classify --recursive --format csv photos/ >classes.csv\n"
      "curl -s https://example.org/cat.jpg | lenslet classify -\n"
      "lenslet classify --model net.onnx --size 300 --mean 127.5 --std 127.5 --bgr cat.jpg\n"
      "lenslet classify --model resnet50.onnx --card models/cards/resnet50.card.json --labels imagenet.txt a.png");
  verb->callback([options, &result] { result = classify(*options); });
}

}  // namespace lenslet::tool
