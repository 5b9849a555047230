#include "photos/default_model.h"

#include <cstdlib>

#include "lenslet/card.h"
#include "lenslet/error.h"

namespace lenslet {

namespace photos {

std::filesystem::path cache_folder() {
  const auto variable = [](const char* name) -> std::filesystem::path {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
  };
  if (const auto cache = variable("LENSLET_CACHE"); !cache.empty()) return cache;
  if (const auto cache = variable("XDG_CACHE_HOME"); !cache.empty()) return cache / "lenslet";
  if (const auto home = variable("HOME"); !home.empty()) return home / ".cache" / "lenslet";
  return {};
}

std::optional<std::filesystem::path> imagenet_labels() {
  auto file = cache_folder() / "imagenet-labels.txt";
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored)) return std::nullopt;
  return file;
}

}  // namespace photos

std::optional<std::filesystem::path> assumed_labels(const Card& card, const BoundCard& bound) {
  if (card.labels || bound.classes - card.class_offset != 1000) return std::nullopt;
  return photos::imagenet_labels();
}

std::filesystem::path default_model() {
  const auto file = photos::cache_folder() / "efficientnet-lite0.onnx";
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored))
    throw Error(ErrorKind::io, "the default model is not there: run tools/quickstart.sh to fetch it, or give --model",
                file.string());
  return file;
}

}  // namespace lenslet
