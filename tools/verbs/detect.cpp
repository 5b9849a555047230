// lenslet detect: finds objects in photos, and draws boxes around them.

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "lenslet/card.h"
#include "lenslet/detector.h"
#include "lenslet/error.h"
#include "lenslet/photos.h"
#include "lenslet/picture.h"
#include "tools/pictures/draw_boxes.h"
#include "tools/pictures/write_png.h"
#include "tools/verbs/classify_output.h"
#include "tools/verbs/common_options.h"
#include "tools/verbs/csv.h"
#include "tools/verbs/preparation.h"
#include "tools/verbs/stop_signals.h"
#include "tools/verbs/terminal.h"
#include "tools/verbs/verbs.h"

namespace lenslet::tool {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct Options {
  std::vector<std::string> photos;
  std::string model, labels, draw, format = "table";
  PreparationOptions preparation;
  DetectOptions detect;
  bool recursive = false;
  PlanOptions plan;
};

struct Result {
  std::string photo, drawing{}, error{};
  std::int64_t height = 0, width = 0;
  double decode_ms = 0, detect_ms = 0;
  std::vector<Detection> found{};
};

/// A file of `folder` for each photo: its name with .png, and a number where that is taken. Error(io) if one is there.
std::vector<fs::path> drawings(const fs::path& folder, const std::vector<std::string>& photos) {
  std::set<fs::path> taken;
  std::vector<fs::path> files;
  for (const std::string& photo : photos) {
    const fs::path name = photo == "-" ? fs::path("stdin") : fs::path(photo).stem();
    fs::path file = folder / name;
    for (int number = 2; !taken.insert(file).second; ++number)
      file = folder / fmt::format("{}_{}", name.string(), number);
    files.push_back(file += ".png");
    if (fs::exists(fs::symlink_status(file)))
      throw Error(ErrorKind::io, "is there already: --draw writes over nothing", file.string());
  }
  fs::create_directories(folder);
  return files;
}

Json to_json(const Result& result) {
  if (!result.error.empty()) return {{"photo", result.photo}, {"error", result.error}};
  Json json{{"photo", result.photo}, {"height", result.height}, {"width", result.width}, {"boxes", Json::array()}};
  for (const auto& [box, index, label, score] : result.found)
    json["boxes"].push_back({{"class", index},
                             {"label", label},
                             {"score", score},
                             {"left", box.left},
                             {"top", box.top},
                             {"right", box.right},
                             {"bottom", box.bottom}});
  if (!result.drawing.empty()) json["drawing"] = result.drawing;
  json["ms"] = {{"decode", result.decode_ms}, {"detect", result.detect_ms}};
  return json;
}

/// A row for each box, or one for a photo that failed.
std::string to_csv(const Result& result) {
  if (!result.error.empty()) return csv_line({result.photo, "", "", "", "", "", "", "", result.error}, stdout);
  std::string text;
  for (const auto& [box, index, label, score] : result.found)
    text += csv_line({result.photo, fmt::to_string(index), label, fmt::to_string(score), fmt::to_string(box.left),
                      fmt::to_string(box.top), fmt::to_string(box.right), fmt::to_string(box.bottom), ""},
                     stdout);
  return text;
}

std::string to_table(const Result& result) {
  if (!result.error.empty()) return {};
  std::string text = fmt::format(
      "{}  {}\n", printable(result.photo),
      styled(Style::dim, fmt::format("(decode {:.1f} ms, detect {:.1f} ms)", result.decode_ms, result.detect_ms),
             stdout));
  for (const auto& [box, index, label, score] : result.found)
    text += fmt::format("  {:>6.2f} %  {:>4}  {}  left {:.0f} top {:.0f} right {:.0f} bottom {:.0f}\n", 100 * score,
                        index, label.empty() ? "(no label)" : label, box.left, box.top, box.right, box.bottom);
  return text + (result.found.empty() ? "  nothing above --threshold\n" : "");
}

/// A photo that cannot be read or prepared has an error in its result; other errors are thrown.
Result detect_in(const std::string& photo, const fs::path& drawing, Detector& detector, const Options& options) {
  using Clock = std::chrono::steady_clock;
  const auto ms_since = [](Clock::time_point start) {
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  };
  Result result{photo};
  bool decoded = false;
  try {
    auto start = Clock::now();
    // Whole, whatever the card says of drafts: boxes are in the photo's own pixels.
    Picture picture = read_image(photo);
    decoded = true;
    result.decode_ms = ms_since(std::exchange(start, Clock::now()));
    result.found = detector.detect(picture, options.detect);
    result.detect_ms = ms_since(start);
    result.height = picture.height, result.width = picture.width;
    if (drawing.empty()) return result;
    draw_boxes(picture, result.found);
    write_png(drawing, picture.view());
    result.drawing = drawing.string();
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::device || (decoded && error.kind() != ErrorKind::invalid_argument)) throw;
    PhotoResult failed;
    failed.name = photo;
    failed.error = error;
    return {.photo = photo, .error = error_text(failed)};
  }
  return result;
}

ExitCode detect(const Options& options) {
  const std::vector<std::string> photos = list_photos(options.photos, options.recursive);
  if (std::ranges::count(photos, "-") > 1)
    throw Error(ErrorKind::invalid_argument, "standard input can be given once", "-");
  const GivenModel given = given_model(options.model, options.preparation);
  if (given.file.empty()) throw Error(ErrorKind::invalid_argument, "--model is missing, and no --card names one");
  const Model model = Model::load(given.file);
  std::optional<FoundCard> found = given.card ? given.card : find_card_of(model, given.file);
  if (!found)
    throw Error(ErrorKind::invalid_argument,
                "no card is known for this model: detect needs one with output.boxes (docs/model-card.md)",
                given.file.string());
  ImageSpec& spec = found->card.spec;
  apply(options.preparation, spec);
  if (options.detect.tile_overlap)  // refuses an overlap before the first photo
    (void)image_tiles(1, 1, spec.height, spec.width, *options.detect.tile_overlap);
  say_source(*found, given.file);
  print_device_note(options.plan);
  const std::vector<fs::path> files =
      options.draw.empty() ? std::vector<fs::path>(photos.size()) : drawings(options.draw, photos);
  const auto labels = options.labels.empty() ? std::nullopt : std::optional<fs::path>(options.labels);
  Detector detector(model, found->card, labels, options.plan);
  note_refused_algorithms(detector.plan(), options.plan);

  Json document = results_header(given.file, *found, detector.plan().device, options.plan);
  document["results"] = Json::array();
  if (options.format == "csv")
    fmt::print("{}", csv_line({"photo", "class", "label", "score", "left", "top", "right", "bottom", "error"}, stdout));
  const StopSignals stop;
  Progress progress(photos.size());
  std::size_t done = 0;
  bool failed = false;
  for (; done < photos.size() && !stop.came(); ++done) {
    const Result result = detect_in(photos[done], files[done], detector, options);
    progress.clear();
    if (!result.error.empty()) say(fmt::format("{}: {}", result.photo, result.error));
    failed |= !result.error.empty();
    if (options.format == "json")
      document["results"].push_back(to_json(result));
    else if (options.format == "jsonl")
      fmt::print("{}\n", to_json(result).dump(-1, ' ', false, Json::error_handler_t::replace));
    else
      fmt::print("{}", options.format == "csv" ? to_csv(result) : to_table(result));
    if (std::fflush(stdout) != 0) throw std::system_error(errno, std::generic_category());
    progress.update(done + 1);
  }
  progress.clear();
  if (options.format == "json") print_document(document);
  if (done == photos.size()) return failed ? exit_failed : exit_ok;
  note(fmt::format("stopped after {} of {} photos", done, photos.size()));
  return exit_stopped;
}

}  // namespace

void add_detect(CLI::App& app, ExitCode& result) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("detect", "Find objects in photos, and draw boxes around them");
  verb->add_option("PHOTO", options->photos, "Photos, or folders of photos; - is standard input")
      ->required()
      ->check(not_empty());
  verb->add_option("--model", options->model, "ONNX file of a detector; default: what --card names");
  add_preparation_options(*verb, options->preparation);
  verb->add_option("--labels", options->labels, "Class names, one a line; default: what the card names");
  verb->add_option("--threshold", options->detect.threshold, "Boxes with a score above this")
      ->check(number_up_to(1))
      ->capture_default_str();
  verb->add_option("--iou", options->detect.iou,
                   "Of two boxes of a class whose intersection over union is more, the better one stays")
      ->check(number_up_to(1))
      ->capture_default_str();
  verb->add_option("--top", options->detect.top, "How many boxes of a photo to show, the best ones")
      ->transform(whole_number(1, 1000000))
      ->capture_default_str();
  verb->add_option("--tiles", options->detect.tile_overlap,
                   "Cover each photo with tiles of the model's input, which overlap by so many pixels: for small "
                   "objects in large photos")
      ->type_name("OVERLAP")
      ->transform(whole_number<std::int64_t>(0, 16383));
  verb->add_option("--draw", options->draw,
                   "Write each photo with its boxes into this folder, as NAME.png. It is made if missing; no file is "
                   "written over")
      ->check(not_empty())
      ->type_name("FOLDER");
  add_plan_options(*verb, options->plan);
  verb->add_flag("--recursive", options->recursive,
                 "Look into the folders in a folder, too; links to folders are left");
  CLI::Option* format =
      verb->add_option("--format", options->format,
                       "table; json: one document; jsonl: a line of JSON for each photo; csv: a row "
                       "for each box")
          ->check(CLI::IsMember(std::vector<std::string>(std::begin(result_formats), std::end(result_formats))))
          ->capture_default_str();
  verb->add_flag_callback(
          "--json", [options] { options->format = "json"; }, "As --format json")
      ->excludes(format);
  add_examples(*verb,
               "lenslet detect --model ultraface-rfb-320.onnx people.jpg\n"
               "lenslet detect --model ultraface-rfb-320.onnx --threshold 0.7 --draw drawn --format csv photos/\n"
               "lenslet detect --model yolov8n.onnx --card yolov8n.card.json --labels coco.txt street.jpg\n"
               "lenslet detect --model yolov8n.onnx --tiles 96 --json aerial.png");
  verb->callback([options, &result] { result = detect(*options); });
}

}  // namespace lenslet::tool
