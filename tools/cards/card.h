#pragma once
// The model card: how photos become a model's input and what its output means. docs/model-card.md describes the JSON.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lenslet/image.h"
#include "lenslet/model.h"

namespace lenslet::tool {

/// A model file that a card applies to, identified by its contents or else by its name.
struct KnownFile {
  std::string name;  ///< without .onnx; empty: no file goes by its name
  std::uintmax_t bytes = 0;
  std::string sha256;  ///< 64 lower-case hexadecimal digits; empty: known by name only
};

struct Card {
  std::string name;                             ///< for people
  std::string model;                            ///< file name of the model, relative to the card; may be empty
  std::optional<std::filesystem::path> labels;  ///< one class name a line, already resolved against the card
  std::string input;                            ///< name of the graph input; empty: the only one
  ImageSpec spec;
  std::string output;             ///< name of the graph output; empty: the first one
  std::optional<bool> softmax;    ///< the output is logits and wants a softmax; unset: as the model's graph says
  std::int64_t class_offset = 0;  ///< class = index in the output - class_offset
  std::vector<KnownFile> files;
};

/// Reads a card file. Unknown fields, wrong types and fields that contradict each other are Error(invalid_argument)
/// naming the field ("x.card.json: resize.size ..."); Error(io) when the file cannot be read.
Card read_card(const std::filesystem::path& file);
/// The same from text; `file` gives the folder and the messages.
Card parse_card(const std::string& text, const std::filesystem::path& file);

/// NAME.card.json beside NAME.onnx, if it is there.
std::optional<std::filesystem::path> find_card(const std::filesystem::path& model_file);
/// What is assumed without a card: the layout, channel count and size that the model's input shows, and the usual
/// ImageNet preparation (RGB, shorter side to 256/224 of the size, center crop, mean and deviation of ImageNet); gray
/// inputs are stretched and scaled to 0..1.
Card assumed_card(const Model& model);
/// One line for people: the preparation in words.
std::string describe(const ImageSpec& spec);

/// What a card and a model agree on.
struct BoundCard {
  std::size_t input = 0, output = 0;  ///< positions in Model::inputs() and outputs()
  std::int64_t classes = 0;           ///< elements of one image's output; -1 while the model leaves it free
  bool softmax = false;               ///< as the card says, or else the graph: no Softmax or Sigmoid made the output
  bool probabilities = false;         ///< what there is then, and not scores of another range
  /// What is odd about the card's output.softmax, given the graph; "" when nothing is.
  std::string remark;
};
/// Finds the ports and compares their shapes with the card: Error(invalid_argument) naming the field that does not fit.
BoundCard bind_card(const Card& card, const Model& model);
/// The card with what it leaves to the model filled in: names of ports, and softmax.
Card bound_to(const Model& model, Card card);

/// One class name a line, UTF-8; Error(invalid_argument) when there are not exactly `classes` (any number when < 0).
std::vector<std::string> read_labels(const std::filesystem::path& file, std::int64_t classes);

}  // namespace lenslet::tool
