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

/// What people are told of where a card comes from: "the card x.card.json, by the model's name only: RGB ...". Empty
/// where they named it or put it beside the model. `model_file` is empty for a model from memory.
std::string source_words(const FoundCard& found, const std::filesystem::path& model_file);

/// share/lenslet/cards beside the folder of the running program (or of the shared library
/// that this is in): models/cards, as installed or in a build folder.
std::filesystem::path known_cards_folder();

/// The card in `folder` that knows the contents of `model_file` (which is only read where a card names its size), or
/// else its name: without ending, upper and lower case alike, and without '-', '_', '.' and ' '. Cards are looked at in
/// the order of their names. Error(invalid_argument) for what is no card.
std::optional<FoundCard> find_known_card(const std::filesystem::path& model_file,
                                         const std::filesystem::path& folder = known_cards_folder());

/// The same of a model in memory, by its contents alone.
std::optional<FoundCard> find_known_card(std::span<const std::byte> model,
                                         const std::filesystem::path& folder = known_cards_folder());

/// Beside the model, else known. A card that goes by the name only is taken where it fits the model.
std::optional<FoundCard> find_card_of(const Model& model, const std::filesystem::path& model_file);
/// That, else what is assumed.
FoundCard card_of(const Model& model, const std::filesystem::path& model_file);
/// The same of a model that was loaded from `bytes`.
FoundCard card_of(const Model& model, std::span<const std::byte> bytes);

}  // namespace lenslet::tool
