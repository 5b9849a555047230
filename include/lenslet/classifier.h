#pragma once
// Runs photos through a model: the core of `lenslet classify`, without reading files and printing.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lenslet/card.h"
#include "lenslet/image.h"
#include "lenslet/model.h"
#include "lenslet/picture.h"

namespace lenslet {

namespace photos {
class ImageRunner;
}

struct ClassResult {
  std::int64_t index = 0;  ///< the class: index in the output - class_offset
  std::string label;       ///< "" without labels
  float prob = 0;
};

/// The `count` best classes of one image's output, best first, without labels, after a softmax if the card asks for
/// one. Error(invalid_argument) for a card that leaves this to the model (see bound_to()). The card's class_offset must
/// be less than the number of scores.
std::vector<ClassResult> best_classes(const Card& card, std::vector<float> scores, std::size_t count);

/// Error(unsupported) unless the model's output is a list of classes for each picture.
void check_classifies(const Model& model, const Card& card);

/// A model, its card and its labels, planned for up to `plan.batch` photos at once. Not thread-safe.
class Classifier {
 public:
  /// Errors as of bind_card, read_labels and Runner. Without `labels` results have none.
  Classifier(const Model& model, const Card& card, const std::optional<std::filesystem::path>& labels,
             PlanOptions plan);
  ~Classifier();
  Classifier(Classifier&&) noexcept;
  Classifier& operator=(Classifier&&) noexcept;

  std::int64_t batch() const;
  /// The number of classes, which labels must match. -1 before the first run if only a run gives the output's shape.
  std::int64_t classes() const;
  const PlanInfo& plan() const;
  const BoundCard& bound() const;
  const Card& card() const { return card_; }
  /// Resizes, crops and normalises into `slot` of the next batch, 0 <= slot < batch(). On CUDA with an f32 input the
  /// GPU does this; run() waits for it.
  void prepare(const ImageView& picture, std::int64_t slot);
  void prepare(const Picture& picture, std::int64_t slot) { prepare(picture.view(), slot); }
  /// Runs the batch, in which at least one slot was prepared; results of the others are meaningless. If only a run
  /// gives the output's shape, errors about output and labels appear here.
  void run();
  /// The `count` best classes of a slot, best first. Between run() and the next prepare().
  std::vector<ClassResult> top(std::int64_t slot, std::size_t count) const;

 private:
  Model model_;
  Card card_;
  std::unique_ptr<photos::ImageRunner> runner_;
  bool late_;  // only a run gives the output's shape
  std::optional<std::filesystem::path> labels_file_;
  Tensor output_;
  std::int64_t output_elems_ = 0;  // of one photo; 0: not yet known
  std::vector<std::string> labels_;
};

}  // namespace lenslet
