#pragma once
// What the handles of python.h lead to.

#include <filesystem>
#include <mutex>
#include <optional>
#include <string>

#include "c_api/handles.h"
#include "lenslet/card.h"
#include "lenslet/classifier.h"
#include "python/native/python.h"

namespace lenslet::python {

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

struct ClassifierObject {
  using Handle = lenslet_classifier;
  static constexpr auto handle_name = "lenslet_classifier";

  ClassifierObject(const Model& model, const Card& card, const std::optional<std::filesystem::path>& labels,
                   const PlanOptions& options)
      : classifier(model, card, labels, options) {}

  std::mutex mutex;  // one thread at a time; a second waits
  Classifier classifier;
};

}  // namespace lenslet::python
