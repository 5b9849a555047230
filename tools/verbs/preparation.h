#pragma once
// Command line options for preprocessing: --card, --size, --mean, --std, --scale, --bgr.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lenslet/card.h"
#include "tools/verbs/model_inputs.h"

namespace lenslet::tool {

struct PreparationOptions {
  std::string card;
  std::vector<std::int64_t> size;
  std::vector<double> mean, std;
  std::optional<double> scale;
  bool bgr = false;
  bool any() const { return !card.empty() || !size.empty() || !mean.empty() || !std.empty() || scale || bgr; }
};

void add_preparation_options(CLI::App& verb, PreparationOptions& options);

/// The command line overrides the card. Error(invalid_argument) for values that do not match the channels.
void apply(const PreparationOptions& options, ImageSpec& spec);

struct GivenModel {
  std::filesystem::path file;     ///< --model, else the model that --card names; empty: neither
  std::optional<FoundCard> card;  ///< from --card
};
GivenModel given_model(const std::string& model, const PreparationOptions& options);

/// JSON of model, device, preparation, card and machine, for the beginning of results.
nlohmann::ordered_json results_header(const std::filesystem::path& model_file, const FoundCard& found,
                                      const std::string& device, const PlanOptions& plan);

/// Reports on stderr where the card comes from, unless it was named or lies beside the model.
void say_source(const FoundCard& found, const std::filesystem::path& model_file);

/// read_named_inputs() with pictures: a file, or "-" for standard input, may also be a picture, recognised by its first
/// bytes. Its input is float or uint8 with 4 dimensions and 1 or 3 channels. A card (--card, the one beside the model,
/// or a known one) gives the preprocessing. Without one the picture is stretched to the input's size, or keeps its own
/// if that is free, as RGB or gray of 0 to 1 (0 to 255 for uint8); stderr says so. Error(invalid_argument) for other
/// inputs, and for preprocessing options without a picture.
std::vector<Tensor> read_pictures_or_tensors(const Model& model, const std::filesystem::path& model_file,
                                             const std::vector<std::string>& texts, const PreparationOptions& options);

}  // namespace lenslet::tool
