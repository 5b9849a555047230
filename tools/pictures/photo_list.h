#pragma once
// The list of photo files for `lenslet classify`.

#include <string>
#include <vector>

namespace lenslet::tool {

/// Files as given; a folder stands for the photos in it (by extension), sorted by path: right in it, or with
/// `recursive` in all folders below, too, but those that links lead to. Nothing is opened: a file that is not there
/// stays in the list, to be reported when it is read. Error(io) for a folder without photos.
std::vector<std::string> list_photos(const std::vector<std::string>& arguments, bool recursive = false);

}  // namespace lenslet::tool
