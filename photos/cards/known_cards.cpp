#include "photos/cards/known_cards.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "lenslet/error.h"
#include "lenslet/lenslet.h"
#include "photos/cards/sha256.h"

namespace lenslet {

using namespace photos;

namespace fs = std::filesystem;

namespace {

constexpr std::string_view ending = ".card.json";

std::vector<fs::path> cards_in(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (auto entry = fs::directory_iterator(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error))
    if (entry->path().string().ends_with(ending)) files.push_back(entry->path());
  std::sort(files.begin(), files.end());
  return files;
}

/// Makes "ResNet-18" and "resnet18" equal.
std::string comparable(std::string_view name) {
  std::string text;
  for (const char c : name)
    if (c != '-' && c != '_' && c != '.' && c != ' ')
      text += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

bool fits(const Card& card, const Model& model) {
  try {
    bind_card(card, model);
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// The file of the program or shared library that contains `address`.
fs::path object_with(const void* address) {
  Dl_info found{};
  link_map* object = nullptr;
  if (::dladdr1(address, &found, reinterpret_cast<void**>(&object), RTLD_DL_LINKMAP) == 0) return {};
  std::error_code error;
  // The program's name is empty in the list of loaded objects.
  const bool program = object->l_name == nullptr || *object->l_name == '\0';
  return program ? fs::read_symlink("/proc/self/exe", error) : fs::canonical(object->l_name, error);
}

}  // namespace

std::string_view to_string(FoundBy found_by) {
  switch (found_by) {
    case FoundBy::option:
      return "option";
    case FoundBy::beside:
      return "beside the model";
    case FoundBy::checksum:
      return "checksum";
    case FoundBy::name:
      return "name";
    case FoundBy::nothing:
      break;
  }
  return "";
}

fs::path photos::known_cards_folder() {
  std::vector<fs::path> folders;
  const void* const in_objects[] = {reinterpret_cast<const void*>(&photos::known_cards_folder),
                                    reinterpret_cast<const void*>(&lenslet_version)};
  for (const void* const address : in_objects) {
    const fs::path folder = object_with(address).parent_path().parent_path();
    folders.push_back(folder / "share");
    folders.push_back(folder.parent_path() / "share");  // of lib/x86_64-linux-gnu
  }
  const char* data = std::getenv("XDG_DATA_DIRS");
  std::istringstream listed(data == nullptr || *data == '\0' ? "/usr/local/share:/usr/share" : data);
  for (std::string folder; std::getline(listed, folder, ':');) folders.emplace_back(folder);
  std::error_code error;
  for (const fs::path& folder : folders)
    if (folder.is_absolute() && fs::is_directory(folder / "lenslet" / "cards", error))
      return folder / "lenslet" / "cards";
  return {};
}

namespace {

/// `name`: comparable(); "" matches no card. `read` hashes the model, which has `bytes` bytes.
std::optional<FoundCard> find_known(const fs::path& folder, const std::string& name,
                                    std::optional<std::uintmax_t> bytes, const std::function<std::string()>& read) {
  std::string sum;
  std::optional<FoundCard> by_name;
  for (const fs::path& file : cards_in(folder)) {
    const Card card = read_card(file);
    for (const KnownFile& known : card.files) {
      if (!known.sha256.empty() && known.bytes == bytes) {
        if (sum.empty()) sum = read();
        if (sum == known.sha256) return FoundCard{card, file, FoundBy::checksum};
      }
      if (!by_name && !name.empty() && comparable(known.name) == name) by_name = FoundCard{card, file, FoundBy::name};
    }
  }
  return by_name;
}

}  // namespace

std::optional<FoundCard> photos::find_known_card(const fs::path& model_file, const fs::path& folder) {
  std::error_code error;
  const std::uintmax_t bytes = fs::file_size(model_file, error);
  return find_known(folder, comparable(model_file.stem().string()), error ? std::nullopt : std::optional(bytes),
                    [&] { return sha256_of(model_file); });
}

std::optional<FoundCard> photos::find_known_card(std::span<const std::byte> model, const fs::path& folder) {
  return find_known(folder, {}, model.size(), [&] { return sha256_of(model); });
}

std::optional<FoundCard> find_card_of(const Model& model, const fs::path& model_file) {
  if (const auto beside = find_card(model_file)) return FoundCard{read_card(*beside), *beside, FoundBy::beside};
  auto known = find_known_card(model_file);
  if (known && known->found_by == FoundBy::name && !fits(known->card, model)) known.reset();
  return known;
}

FoundCard card_of(const Model& model, const fs::path& model_file) {
  if (auto found = find_card_of(model, model_file)) return *std::move(found);
  return {assumed_card(model), {}, FoundBy::nothing};
}

FoundCard card_of(const Model& model, std::span<const std::byte> bytes) {
  if (auto found = find_known_card(bytes)) return *std::move(found);
  return {assumed_card(model), {}, FoundBy::nothing};
}

std::string source_words(const FoundCard& found, const fs::path& model_file) {
  const std::string words = describe(found.card), card = found.file.filename().string();
  switch (found.found_by) {
    case FoundBy::option:
    case FoundBy::beside:
      return {};
    case FoundBy::checksum:
      return fmt::format("the card {}, by the model's checksum: {}", card, words);
    case FoundBy::name:
      return fmt::format("the card {}, by the model's name only: {}", card, words);
    case FoundBy::nothing:
      break;
  }
  if (model_file.empty()) return fmt::format("no card knows the model's checksum: assuming {}", words);
  return fmt::format("no card {} beside the model: assuming {}",
                     fs::path(model_file).replace_extension(".card.json").filename().string(), words);
}

}  // namespace lenslet
