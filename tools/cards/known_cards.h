#pragma once
// Selects a model's card: the one beside it, a built-in one, or a default.

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tools/cards/card.h"

namespace lenslet::tool {

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

/// share/lenslet/cards beside the folder of the running program, or of the shared library with this code. It holds
/// models/cards, installed or in a build folder.
std::filesystem::path known_cards_folder();

/// The card in `folder` that identifies `model_file` by its contents (read only if a card names its size), or else by
/// its name without the extension, ignoring case and '-', '_', '.' and ' '. Cards are tried in the order of their
/// names. Error(invalid_argument) for an invalid card.
std::optional<FoundCard> find_known_card(const std::filesystem::path& model_file,
                                         const std::filesystem::path& folder = known_cards_folder());

/// The same for a model in memory, by its contents only.
std::optional<FoundCard> find_known_card(std::span<const std::byte> model,
                                         const std::filesystem::path& folder = known_cards_folder());

/// The card beside the model, else a known one. A card that matches by name only must fit the model.
std::optional<FoundCard> find_card_of(const Model& model, const std::filesystem::path& model_file);
/// The same, else the default.
FoundCard card_of(const Model& model, const std::filesystem::path& model_file);
/// The same for a model loaded from `bytes`.
FoundCard card_of(const Model& model, std::span<const std::byte> bytes);

}  // namespace lenslet::tool
