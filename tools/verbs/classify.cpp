// lenslet classify: names what photos show.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
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
#include "tools/verbs/classify_output.h"
#include "tools/verbs/common_options.h"
#include "tools/verbs/preparation.h"
#include "tools/verbs/results_file.h"
#include "tools/verbs/stop_signals.h"
#include "tools/verbs/terminal.h"
#include "tools/verbs/verbs.h"

namespace lenslet::tool {

namespace {

struct Options {
  std::vector<std::string> photos;
  std::string model, labels;
  PreparationOptions preparation;
  std::vector<std::string> devices;
  std::int64_t batch = 0;
  std::size_t top = 5;
  std::string format = "table", output, decode = "cpu";
  bool recursive = false, resume = false;
  PlanOptions plan;
};

/// "2 Runners of 1 thread on cpu, batch 1"
std::string describe(const std::vector<PhotoRunners>& runners) {
  std::string text;
  for (const PhotoRunners& on : runners)
    text += fmt::format("{}{} {} of {} {} on {}, batch {}", text.empty() ? "" : "; ", on.runners,
                        on.runners == 1 ? "Runner" : "Runners", on.threads, on.threads == 1 ? "thread" : "threads",
                        on.device, on.batch);
  return text;
}

/// Prints results in order until all are there or a signal comes.
ExitCode print_results(PhotoClassifier& classifier, const std::vector<std::string>& photos, const Options& options,
                       ResultOutput output) {
  const bool rows_at_terminal = isatty(fileno(output.stream)) == 1;
  const StopSignals stop;
  const auto printer = make_result_printer(options.format, std::move(output));
  Progress progress(photos.size());
  std::size_t offered = 0, done = 0;
  bool failed = false;
  const auto print = [&](const PhotoResult& result) {
    if (rows_at_terminal || result.error) progress.clear();
    if (result.error) say(fmt::format("{}: {}", result.name, error_text(result)));
    failed |= result.error.has_value();
    printer->add(result);
    ++done;
  };
  try {
    while (done < photos.size() && !stop.came()) {
      while (offered < photos.size() && classifier.offer({photos[offered]})) ++offered;
      // A signal does not wait for a photo that comes slowly through a pipe.
      if (const auto result = classifier.take_within(std::chrono::milliseconds(100))) print(*result);
      progress.update(done);
    }
    while (const auto result = classifier.take_ready()) print(*result);
  } catch (...) {
    progress.clear();
    printer->finish();
    throw;
  }
  progress.clear();
  printer->finish();
  if (done == photos.size()) return failed ? exit_failed : exit_ok;
  note(fmt::format("stopped after {} of {} photos", done, photos.size()));
  std::_Exit(exit_stopped);  // nor does the end
}

ExitCode classify(const Options& options) {
  for (const std::string& photo : options.photos)
    if (photo.ends_with(".onnx") && std::filesystem::exists(photo))
      throw Error(ErrorKind::invalid_argument, "this is a model, no photo: give it by --model", photo);
  if (std::ranges::count(options.photos, "-") > 1)
    throw Error(ErrorKind::invalid_argument, "standard input can be given once", "-");
  if (options.resume && options.format != "jsonl" && options.format != "csv")
    throw Error(ErrorKind::invalid_argument, "--resume needs --format jsonl or csv");
  std::vector<std::string> photos = list_photos(options.photos, options.recursive);
  ResultOutput output;
  std::optional<ResultsFile> results;
  if (!options.output.empty()) {
    results.emplace(options.output, options.format, options.resume, options.top);
    output.stream = results->stream();
    output.file = options.output;
    output.is_continued = results->earlier.bytes > 0;
  }
  if (output.is_continued) {
    remove_done(photos, std::exchange(results->earlier.photos, {}), options.format);
    note(fmt::format("{}: {} photos have results, {} are left", options.output, results->earlier.count, photos.size()));
    if (photos.empty()) return exit_ok;
  }
  GivenModel given = given_model(options.model, options.preparation);
  if (given.file.empty()) given.file = default_model();
  const Model model = Model::load(given.file);
  FoundCard found = given.card ? *std::move(given.card) : card_of(model, given.file);
  apply(options.preparation, found.card.spec);
  say_source(found, given.file);
  PhotoOptions with;
  with.devices = options.devices.empty() ? std::vector{options.plan.device} : options.devices;
  with.threads = options.plan.threads;
  with.batch = options.batch;
  with.top = options.top;
  with.count = photos.size();
  if (options.decode == "gpu") with.decode = PhotoOptions::Decode::gpu;
  if (!options.labels.empty()) with.labels = options.labels;
  if (!with.labels) {
    with.labels = assumed_labels(found.card, bind_card(found.card, model));
    if (with.labels) note("1000 classes without names: assuming ImageNet's (--labels names others)");
  }
  with.plan = options.plan;
  if (options.devices.empty()) print_device_note(with.plan);
  PhotoClassifier classifier(model, found.card, with);
  note_refused_algorithms(classifier.plan(), with.plan);
  if (const std::string& remark = classifier.bound().remark; !remark.empty()) note(remark);
  if (photos.size() > 1 && (!options.devices.empty() || isatty(STDERR_FILENO) == 1))
    note(describe(classifier.runners()));
  if (!classifier.gpu_decoder().empty()) note("JPEGs are decoded by " + classifier.gpu_decoder());
  for (const PhotoRunners& on : classifier.runners()) output.device += (output.device.empty() ? "" : ",") + on.device;
  with.plan.device = classifier.runners().front().device;
  output.probabilities = classifier.bound().probabilities;
  output.header = results_header(given.file, found, output.device, with.plan);
  return print_results(classifier, photos, options, std::move(output));
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
  verb->add_option("--batch", options->batch, "How many photos go through the model at once")
      ->transform(whole_number(1, 1024))
      ->default_str("1 on the CPU, 32 on a GPU");
  add_plan_options(*verb, options->plan);
  verb->get_option("--threads")
      ->description("Threads for decoding and running, all together; 0: all cores this process may use");
  verb->add_option("--devices", options->devices,
                   "Several devices, instead of --device, separated by commas: cpu, cuda:0, cuda:1; all: each that is "
                   "usable. The CPU runs photos that find the GPUs' queue full")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("LIST")
      ->check(not_empty());
  verb->add_option("--decode", options->decode,
                   "What decodes JPEGs for a GPU: cpu; gpu: nvJPEG, whose pixels differ a little, and which may read a "
                   "damaged file as another picture")
      ->check(CLI::IsMember({"cpu", "gpu"}))
      ->capture_default_str();
  verb->add_flag("--recursive", options->recursive,
                 "Look into the folders in a folder, too; links to folders are left");
  CLI::Option* format =
      verb->add_option("--format", options->format,
                       "table; json: one document; jsonl: a line of JSON for each photo; csv: a row for each "
                       "photo and class. Each prints a photo's result when those before it are done")
          ->check(CLI::IsMember(std::vector<std::string>(std::begin(result_formats), std::end(result_formats))))
          ->capture_default_str();
  verb->add_flag_callback(
          "--json", [options] { options->format = "json"; }, "As --format json")
      ->excludes(format);
  CLI::Option* output = verb->add_option("--output", options->output, "Write results into this new file")
                            ->check(not_empty())
                            ->type_name("FILE");
  verb->add_flag("--resume", options->resume,
                 "Continue --output (jsonl or csv), if it is there, with the same options: photos with results or an "
                 "error in it are skipped, and an incomplete end is removed")
      ->needs(output);
  add_examples(
      *verb,
      "lenslet classify cat.jpg\n"
      "lenslet classify --top 3 --batch 8 --json holiday/\n"
      "lenslet classify --recursive --format csv photos/ >classes.csv\n"
      "lenslet classify --format jsonl --output classes.jsonl --resume photos/\n"
      "curl -s https://example.org/cat.jpg | lenslet classify -\n"
      "lenslet classify --model net.onnx --size 300 --mean 127.5 --std 127.5 --bgr cat.jpg\n"
      "lenslet classify --model resnet50.onnx --card models/cards/resnet50.card.json --labels imagenet.txt a.png");
  verb->callback([options, &result] { result = classify(*options); });
}

}  // namespace lenslet::tool
