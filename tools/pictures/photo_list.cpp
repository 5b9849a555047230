#include "tools/pictures/photo_list.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <string_view>

#include "lenslet/error.h"

namespace lenslet::tool {

namespace fs = std::filesystem;

namespace {

bool is_photo_name(const fs::path& file) {
  static constexpr std::array<std::string_view, 9> extensions{".jpg", ".jpeg", ".jpe", ".jfif", ".png",
                                                              ".bmp", ".ppm",  ".pgm", ".pnm"};
  std::string extension = file.extension().string();
  for (char& c : extension) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return std::find(extensions.begin(), extensions.end(), extension) != extensions.end();
}

}  // namespace

std::vector<std::string> list_photos(const std::vector<std::string>& arguments) {
  std::vector<std::string> photos;
  for (const std::string& argument : arguments) {
    std::error_code error;
    if (!fs::is_directory(argument, error)) {
      photos.push_back(argument);
      continue;
    }
    std::vector<std::string> found;
    std::error_code ignored;  // of a bad link, which stays in the list
    for (auto entry = fs::directory_iterator(argument, error); !error && entry != fs::directory_iterator();
         entry.increment(error))
      if (is_photo_name(entry->path()) && !entry->is_directory(ignored)) found.push_back(entry->path().string());
    if (error) throw Error(ErrorKind::io, "the folder cannot be read: " + error.message(), argument);
    if (found.empty()) throw Error(ErrorKind::io, "there are no photos in this folder", argument);
    std::sort(found.begin(), found.end());
    photos.insert(photos.end(), found.begin(), found.end());
  }
  return photos;
}

}  // namespace lenslet::tool
