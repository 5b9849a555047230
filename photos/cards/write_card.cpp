#include "photos/cards/write_card.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace lenslet::photos {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::ordered_json;

/// Relative to the card if the file is below its folder.
std::string named_from(const fs::path& folder, const fs::path& file) {
  std::error_code error;
  const fs::path relative = fs::proximate(file, folder.empty() ? "." : folder, error);
  if (!error && !relative.empty() && *relative.begin() != "..") return relative.string();
  const fs::path absolute = fs::absolute(file, error);
  return (error ? file : absolute).string();
}

/// JSON on one line, with spaces after separators.
std::string line(const Json& value) {
  std::string text;
  for (const char c : value.dump(0, ' ', false, Json::error_handler_t::replace))
    if (c != '\n')
      text += c;
    else if (text.back() == ',')
      text += ' ';
  return text;
}

Json to_json(const Card& card) {
  const ImageSpec& spec = card.spec;
  using Channels = ImageSpec::Channels;
  using Resize = ImageSpec::Resize;
  using Filter = ImageSpec::Filter;
  Json json;
  json["input"] = {{"name", card.input},
                   {"layout", spec.nhwc ? "NHWC" : "NCHW"},
                   {"channels", spec.channels == Channels::rgb   ? "RGB"
                                : spec.channels == Channels::bgr ? "BGR"
                                                                 : "gray"},
                   {"size", {spec.height, spec.width}}};
  if (spec.resize != Resize::none) {
    const bool longer = spec.resize == Resize::longer_side, fit = spec.resize == Resize::fit;
    Json& resize = json["resize"] = {{"mode", longer                           ? "longer_side"
                                              : fit                            ? "fit"
                                              : spec.resize == Resize::stretch ? "stretch"
                                                                               : "shorter_side"}};
    if (longer || spec.resize == Resize::shorter_side) resize["size"] = spec.resize_size;
    if (longer || fit) resize["round_down"] = spec.round_down;
    resize["filter"] = spec.filter == Filter::bilinear  ? "bilinear"
                       : spec.filter == Filter::bicubic ? "bicubic"
                                                        : "nearest";
    resize["antialias"] = spec.antialias;
    resize["draft"] = card.draft;
  }
  json["crop"] = spec.crop == ImageSpec::Crop::center ? "center" : "none";
  if (spec.pad != ImageSpec::Pad::none)
    json["pad"] = {{"color", spec.pad_color}, {"position", spec.pad == ImageSpec::Pad::center ? "center" : "top_left"}};
  json["normalize"] = {{"scale", spec.scale}, {"mean", spec.mean}, {"std", spec.std}};
  json["output"] = {{"name", card.output},
                    {"softmax", card.softmax ? Json(*card.softmax) : Json()},
                    {"class_offset", card.class_offset}};
  if (!card.boxes) return json;
  constexpr const char* forms[] = {"boxes_scores", "yolov8", "yolov5", "end_to_end", "boxes_labels_scores"};
  Json& boxes = json["output"]["boxes"] = {{"form", forms[static_cast<std::size_t>(card.boxes->form)]},
                                           {"coordinates", card.boxes->center ? "center" : "corners"},
                                           {"normalized", card.boxes->normalized}};
  if (!card.boxes->boxes.empty()) boxes["boxes"] = card.boxes->boxes;
  if (!card.boxes->labels.empty()) boxes["labels"] = card.boxes->labels;
  return json;
}

}  // namespace

std::string card_text(const Card& open, const Model& model, const fs::path& model_file, const fs::path& folder) {
  const Card card = bound_to(model, open);
  Json json{{"name", card.name.empty() ? model_file.stem().string() : card.name},
            {"model", named_from(folder, model_file)},
            {"labels", card.labels ? named_from(folder, *card.labels) : ""}};
  json.update(to_json(card));
  std::string text;
  for (const auto& [field, value] : json.items())
    text += fmt::format("{}\n  \"{}\": {}", text.empty() ? "{" : ",", field, line(value));
  return text + "\n}\n";
}

std::string card_json(const Card& card) {
  Json json{{"name", card.name}};
  json.update(to_json(card));
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace lenslet::photos
