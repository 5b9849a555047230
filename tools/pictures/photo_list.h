#pragma once
// The list of photo files for `lenslet classify`.

#include <string>
#include <vector>

namespace lenslet::tool {

/// Files as given. A folder stands for its photos (by extension), sorted by path; with `recursive` also those in
/// subfolders, without following links. Nothing is opened: a missing file stays in the list, and reading it reports the
/// error. Error(io) for a folder without photos.
std::vector<std::string> list_photos(const std::vector<std::string>& arguments, bool recursive = false);

}  // namespace lenslet::tool
