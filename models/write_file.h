#pragma once
// Atomic file writes.

#include <cstddef>
#include <filesystem>
#include <initializer_list>
#include <span>

namespace lenslet {

/// As write_file of lenslet/tensor_file.h, with `parts` one after another.
void write_file(const std::filesystem::path& file, std::initializer_list<std::span<const std::byte>> parts);

}  // namespace lenslet
