#pragma once
// Parses device names without querying any device.

#include <optional>
#include <string_view>

namespace lenslet {

/// The index in "cuda" and "cuda:1", which need not exist; nullopt for any other name.
std::optional<int> cuda_index(std::string_view name);

}  // namespace lenslet
