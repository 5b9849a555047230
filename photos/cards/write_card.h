#pragma once
// A card as text: complete, for editing, or portable, for another process.

#include <filesystem>
#include <string>

#include "lenslet/card.h"

namespace lenslet::photos {

/// JSON for parse_card(), for a card in `folder`, to which file names are relative. `model_file` is the model's file.
/// The fields that a card leaves to the model are filled in.
std::string card_text(const Card& card, const Model& model, const std::filesystem::path& model_file,
                      const std::filesystem::path& folder);

/// JSON from which parse_card() makes the same card in any folder: without file names.
std::string card_json(const Card& card);

}  // namespace lenslet::photos
