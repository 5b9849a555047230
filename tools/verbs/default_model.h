#pragma once
// Folder of the default model, filled by tools/scripts/fetch_default_model.sh and used by `lenslet classify` without
// --model.

#include <filesystem>
#include <optional>

#include "tools/cards/card.h"

namespace lenslet::tool {

/// $LENSLET_CACHE, else $XDG_CACHE_HOME/lenslet, else $HOME/.cache/lenslet; empty if none is set.
std::filesystem::path cache_folder();
/// efficientnet-lite0.onnx in the cache folder. Error(io) names the command that fetches it.
std::filesystem::path default_model();

/// The 1000 ImageNet names that come with the default model, if they were fetched.
std::optional<std::filesystem::path> imagenet_labels();
/// The same for a model of 1000 classes whose card names no labels; else nothing.
std::optional<std::filesystem::path> assumed_labels(const Card& card, const BoundCard& bound);

}  // namespace lenslet::tool
