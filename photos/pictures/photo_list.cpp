#include "lenslet/photos.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "lenslet/error.h"

namespace lenslet {

namespace fs = std::filesystem;

namespace {

bool is_photo_name(const fs::path& file) {
  static constexpr std::array<std::string_view, 10> extensions{".jpg", ".jpeg", ".jpe", ".jfif", ".png",
                                                               ".bmp", ".ppm",  ".pgm", ".pnm",  ".webp"};
  std::string extension = file.extension().string();
  for (char& c : extension) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return std::find(extensions.begin(), extensions.end(), extension) != extensions.end();
}

std::vector<std::string> photos_in(const std::string& folder, bool recursive) {
  std::vector<std::string> found, folders{folder};
  while (!folders.empty()) {
    const std::string next = std::move(folders.back());
    folders.pop_back();
    std::error_code error, ignored;  // ignored: for a broken link, which stays in the list
    for (auto entry = fs::directory_iterator(next, error); !error && entry != fs::directory_iterator();
         entry.increment(error)) {
      if (!entry->is_directory(ignored)) {
        if (is_photo_name(entry->path())) found.push_back(entry->path().string());
      } else if (recursive && !entry->is_symlink(ignored)) {
        folders.push_back(entry->path().string());
      }
    }
    const bool is_gone = error == std::errc::no_such_file_or_directory && next != folder;  // removed meanwhile
    if (error && !is_gone) throw Error(ErrorKind::io, "the folder cannot be read: " + error.message(), next);
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

std::vector<std::string> list_photos(const std::vector<std::string>& arguments, bool recursive) {
  std::vector<std::string> photos;
  for (const std::string& argument : arguments) {
    std::error_code error;
    if (!fs::is_directory(argument, error)) {
      photos.push_back(argument);
      continue;
    }
    const std::vector<std::string> found = photos_in(argument, recursive);
    if (found.empty())
      throw Error(ErrorKind::io,
                  recursive ? "there are no photos in this folder, nor below it"
                            : "there are no photos in this folder (--recursive looks into those below it)",
                  argument);
    photos.insert(photos.end(), found.begin(), found.end());
  }
  return photos;
}

}  // namespace lenslet
