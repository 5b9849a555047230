#pragma once
// Whole files, written at once.

#include <filesystem>
#include <string_view>

namespace lenslet::tool {

/// Written beside `file` and renamed when complete: nobody reads half of it. Error(io), which leaves everything as it
/// was.
void write_file(const std::filesystem::path& file, std::string_view bytes);

}  // namespace lenslet::tool
