#pragma once
// The cards that ship with lenslet.

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>

#include "lenslet/card.h"

namespace lenslet::photos {

/// models/cards as installed: share/lenslet/cards beside the folder (bin, lib, lib/x86_64-linux-gnu) of the program or
/// shared library with this code, or of liblenslet.so; else lenslet/cards in a folder of XDG_DATA_DIRS. Empty if there
/// is none.
std::filesystem::path known_cards_folder();

/// The card in `folder` that identifies `model_file` by its contents (read only if a card names its size), or else by
/// its name without the extension, ignoring case and '-', '_', '.' and ' '. Cards are tried in the order of their
/// names. Error(invalid_argument) for an invalid card.
std::optional<FoundCard> find_known_card(const std::filesystem::path& model_file,
                                         const std::filesystem::path& folder = known_cards_folder());

/// The same for a model in memory, by its contents only.
std::optional<FoundCard> find_known_card(std::span<const std::byte> model,
                                         const std::filesystem::path& folder = known_cards_folder());

}  // namespace lenslet::photos
