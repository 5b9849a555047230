#pragma once
// Command line options for preprocessing: --card, --size, --mean, --std, --scale, --bgr.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tools/cards/known_cards.h"
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

/// The command line overrides the card. Error(invalid_argument) for values that do not fit the channels.
void apply(const PreparationOptions& options, ImageSpec& spec);

/// Reports on stderr where the card comes from, unless it was named or is beside the model.
void say_source(const FoundCard& found, const std::filesystem::path& model_file);

/// read_named_inputs() where a file, "-" being standard input, may also be a picture, told by its first bytes: prepared
/// for a float or uint8 input of 4 dimensions with 1 or 3 channels by the card (--card, the one beside the model, a
/// known one), or else stretched to the input's size, or as large as it is where the model leaves that free, as RGB or
/// gray of 0 to 1 (of pixels as they are, for uint8), which is said on stderr. Error(invalid_argument) where the input
/// takes no picture, and for preparation options without a picture.
std::vector<Tensor> read_pictures_or_tensors(const Model& model, const std::filesystem::path& model_file,
                                             const std::vector<std::string>& texts, const PreparationOptions& options);

}  // namespace lenslet::tool
