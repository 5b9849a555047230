#pragma once
// What device names say without a look at any device.

#include <optional>
#include <string_view>

namespace lenslet {

/// Of "cuda" and "cuda:1", which need not exist; nothing for any other name.
std::optional<int> cuda_index(std::string_view name);

}  // namespace lenslet
