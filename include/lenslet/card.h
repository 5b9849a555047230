#pragma once
// The model card: how photos become a model's input and what its output means. docs/model-card.md describes the JSON.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lenslet/image.h"
#include "lenslet/model.h"

namespace lenslet {

/// A model file that a card applies to, identified by its contents or by its name.
struct KnownFile {
  std::string name;  ///< without .onnx; empty: not identified by name
  std::uintmax_t bytes = 0;
  std::string sha256;  ///< 64 lower-case hexadecimal digits; empty: identified by name only
};

/// How a detector's outputs hold boxes. N is the number of boxes; a leading 1 may be missing.
struct BoxOutput {
  enum class Form {
    boxes_scores,         ///< two outputs: boxes [1,N,4], scores [1,N,classes]
    yolov8,               ///< one output [1,4+classes,N]: box, scores
    yolov5,               ///< one output [1,N,5+classes]: box, objectness, scores
    end_to_end,           ///< after non-maximum suppression: one output [1,N,6]: box, score, class
    boxes_labels_scores,  ///< after non-maximum suppression: three outputs: boxes [N,4], classes [N], scores [N]
  };
  Form form = Form::boxes_scores;
  std::string boxes, labels;  ///< names of the outputs beside Card::output, where the form has them; else empty
  bool center = false;        ///< a box is (cx, cy, w, h); else its corners (x1, y1, x2, y2)
  bool normalized = false;    ///< 0 to 1 of the input's width and height; else the input's pixels

  bool is_suppressed() const { return form == Form::end_to_end || form == Form::boxes_labels_scores; }
};

struct Card {
  std::string name;                             ///< for people
  std::string model;                            ///< file name of the model, relative to the card; may be empty
  std::optional<std::filesystem::path> labels;  ///< one class name a line, already resolved against the card
  std::string input;                            ///< name of the graph input; empty: the only one
  ImageSpec spec;
  bool draft = false;              ///< JPEGs may be decoded at 1/2 to 1/8 (DecodeOptions::draft)
  std::string output;              ///< name of the graph output; empty: the first one
  std::optional<bool> softmax;     ///< the output is logits and needs a softmax; unset: the graph decides
  std::int64_t class_offset = 0;   ///< class = index in the output - class_offset
  std::optional<BoxOutput> boxes;  ///< of a detector, whose `output` has the scores
  std::vector<KnownFile> files;

  /// For DecodeOptions.
  const ImageSpec* draft_spec() const { return draft ? &spec : nullptr; }
};

/// Reads a card file. Error(invalid_argument) for unknown fields, wrong types and contradicting fields; the message
/// names the field ("x.card.json: resize.size ..."). Error(io) when the file cannot be read.
Card read_card(const std::filesystem::path& file);
/// The same from text; `file` gives the folder and the name in messages.
Card parse_card(const std::string& text, const std::filesystem::path& file);

/// NAME.card.json beside NAME.onnx, if it exists.
std::optional<std::filesystem::path> find_card(const std::filesystem::path& model_file);
/// The default without a card: the layout, channel count and size of the model's input, and the usual ImageNet
/// preprocessing (RGB, shorter side to 256/224 of the size, center crop, ImageNet's mean and deviation). Gray inputs
/// are stretched and scaled to 0..1.
Card assumed_card(const Model& model);
/// The preprocessing as one line for people.
std::string describe(const ImageSpec& spec);
std::string describe(const Card& card);

/// A card resolved against a model.
struct BoundCard {
  std::size_t input = 0, output = 0;  ///< positions in Model::inputs() and outputs()
  std::int64_t fixed_batch = 0;       ///< the batch that the exporter fixed, 2 or more, which a plan keeps; 0: any
  std::size_t boxes = 0,
              labels = 0;      ///< of Card::boxes, in Model::outputs(); `output` where the form has no such output
  std::int64_t classes = 0;    ///< elements of one image's output; -1 if the model leaves it free, or with boxes
  bool softmax = false;        ///< as the card says, else by the graph: true unless the output comes from
                               ///< Softmax or Sigmoid
  bool probabilities = false;  ///< results are probabilities; else scores of another range
  /// A warning about the card's output.softmax, given the graph; "" if there is none.
  std::string remark;
};
/// Finds the ports and compares their shapes with the card. Error(invalid_argument) names the field that does not fit.
BoundCard bind_card(const Card& card, const Model& model);
/// The card with the fields that it leaves to the model filled in: port names and softmax.
Card bound_to(const Model& model, Card card);

/// One class name a line, UTF-8. Error(invalid_argument) unless there are exactly `classes` (any number if negative).
std::vector<std::string> read_labels(const std::filesystem::path& file, std::int64_t classes);

enum class FoundBy { option, beside, checksum, name, nothing };
/// "option", "beside the model", "checksum", "name"; "" for nothing.
std::string_view to_string(FoundBy found_by);

struct FoundCard {
  Card card;
  std::filesystem::path file;  ///< empty when assumed
  FoundBy found_by = FoundBy::nothing;
};

/// Tells people where a card comes from: "the card x.card.json, by the model's name only: RGB ...". Empty if they named
/// it or put it beside the model. `model_file` is empty for a model from memory.
std::string source_words(const FoundCard& found, const std::filesystem::path& model_file);

/// The card beside the model, else a known one. A card that matches by name only must fit the model.
std::optional<FoundCard> find_card_of(const Model& model, const std::filesystem::path& model_file);
/// The same, else the default.
FoundCard card_of(const Model& model, const std::filesystem::path& model_file);
/// The same for a model loaded from `bytes`.
FoundCard card_of(const Model& model, std::span<const std::byte> bytes);

/// The 1000 ImageNet names that come with the default model, if they were fetched, for a model of 1000 classes whose
/// card names no labels; else nothing.
std::optional<std::filesystem::path> assumed_labels(const Card& card, const BoundCard& bound);

/// The default model's file, EfficientNet-Lite0, as `lenslet fetch` or tools/scripts/fetch_default_model.sh leave it.
/// Error(io) names the command that fetches it.
std::filesystem::path default_model();

}  // namespace lenslet
