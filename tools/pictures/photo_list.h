#pragma once
// Which files `lenslet classify` was asked for.

#include <string>
#include <vector>

namespace lenslet::tool {

/// Files as given; a folder stands for the photos right in it (by extension), sorted by name. Nothing is opened: a file
/// that is not there stays in the list, to be reported when it is read. Error(io) for a folder without photos.
std::vector<std::string> list_photos(const std::vector<std::string>& arguments);

}  // namespace lenslet::tool
