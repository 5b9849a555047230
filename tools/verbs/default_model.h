#pragma once
// Folder of the default model, filled by tools/scripts/fetch_default_model.sh and used by `lenslet classify` without
// --model.

#include <filesystem>
#include <optional>

#include "tools/cards/card.h"

namespace lenslet::tool {

/// $LENSLET_CACHE, else $XDG_CACHE_HOME/lenslet, else $HOME/.cache/lenslet; empty when none is set.
std::filesystem::path cache_folder();
/// efficientnet-lite0.onnx in there; Error(io) with the command that fetches it when it is absent.
std::filesystem::path default_model();

/// ImageNet's 1000 names as they came with the default model; nothing when they are not there.
std::optional<std::filesystem::path> imagenet_labels();
/// Those, for a model of 1000 classes whose card names no labels.
std::optional<std::filesystem::path> assumed_labels(const Card& card, const BoundCard& bound);

}  // namespace lenslet::tool
