#pragma once
// Folder of the default model, filled by tools/scripts/fetch_default_model.sh and used by `lenslet classify` without
// --model.

#include <filesystem>
#include <optional>

namespace lenslet::photos {

/// $LENSLET_CACHE, else $XDG_CACHE_HOME/lenslet, else $HOME/.cache/lenslet; empty if none is set.
std::filesystem::path cache_folder();

/// The 1000 ImageNet names that come with the default model, if they were fetched.
std::optional<std::filesystem::path> imagenet_labels();

}  // namespace lenslet::photos
