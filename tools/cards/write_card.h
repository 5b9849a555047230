#pragma once
// A card as text: every field of it, so that somebody can edit it, or what goes to another process.

#include <filesystem>
#include <string>

#include "tools/cards/card.h"

namespace lenslet::tool {

/// JSON that parse_card() reads back, for a card in `folder`: files in it are named relative to that. `model_file` is
/// what it is for. What a card leaves to the model is filled in.
std::string card_text(const Card& card, const Model& model, const std::filesystem::path& model_file,
                      const std::filesystem::path& folder);

/// JSON that parse_card() makes the same card of anywhere: without the files that it names.
std::string card_json(const Card& card);

}  // namespace lenslet::tool
