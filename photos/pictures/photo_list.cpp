#include "lenslet/photos.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iterator>
#include <string_view>
#include <system_error>

#include "lenslet/error.h"

namespace lenslet {

namespace fs = std::filesystem;

namespace {

bool is_photo_name(const fs::path& file) {
  static constexpr std::string_view always[] = {".jpg", ".jpeg", ".jpe", ".jfif", ".png",
                                                ".bmp", ".ppm",  ".pgm", ".pnm",  ".webp"};
  static constexpr std::string_view with_libheif[] = {".heic", ".heif", ".avif"};
  std::string extension = file.extension().string();
  for (char& c : extension) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const auto is_one_of = [&](const auto& names) { return std::ranges::find(names, extension) != std::end(names); };
  return is_one_of(always) || (LENSLET_HAVE_HEIF != 0 && is_one_of(with_libheif));
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
