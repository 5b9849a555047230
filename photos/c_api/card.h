#pragma once
// The object behind a lenslet_card.

#include <filesystem>
#include <optional>
#include <string>

#include "c_api/handles.h"
#include "lenslet/card.h"
#include "lenslet/lenslet_photos.h"

namespace lenslet::c_api {

struct CardObject {
  using Handle = lenslet_card;
  static constexpr auto handle_name = "lenslet_card";
  const Card card;
  const FoundBy found_by;
  const std::filesystem::path file;  // empty: of no file
  const std::string words = {};      // of where it comes from, for people
  // Of a card that was bound to a model:
  const std::optional<std::filesystem::path> assumed_labels = {};
  const std::string remark = {};
};

using Cards = Handles<CardObject>;

}  // namespace lenslet::c_api
