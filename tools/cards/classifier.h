#pragma once
// Runs photos through a model: the part of `lenslet classify` between reading files and printing.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lenslet/image.h"
#include "lenslet/runner.h"
#include "tools/cards/card.h"
#include "tools/pictures/read_image.h"

namespace lenslet::tool {

struct ClassResult {
  std::int64_t index = 0;  ///< class, that is index in the output - class_offset
  std::string label;       ///< "" without labels
  float prob = 0;
};

/// The `count` best classes of one image's output, best first, without labels: behind a softmax where the card wants
/// one. Error(invalid_argument) for a card that leaves that to a model: bound_to() asks it. The card's class_offset is
/// less than the number of scores.
std::vector<ClassResult> best_classes(const Card& card, std::vector<float> scores, std::size_t count);

/// Error(unsupported) where the model's output is no list of classes for each picture.
void check_classifies(const Model& model, const Card& card);

/// A model, its card and its labels, planned for up to `plan.batch` photos at once. Not thread-safe.
class Classifier {
 public:
  /// Error kinds of bind_card, read_labels and Runner. Without `labels` results have none.
  Classifier(const Model& model, const Card& card, const std::optional<std::filesystem::path>& labels,
             PlanOptions plan);

  std::int64_t batch() const { return batch_; }
  /// Labels have to be as many. -1 before the first run of a model whose output has the shape that a run gives it.
  std::int64_t classes() const;
  const PlanInfo& plan() const { return runner_.plan(); }
  const BoundCard& bound() const { return bound_; }
  /// Resizes, crops and normalises into `slot` of the next batch, 0 <= slot < batch(). On CUDA this is queued for the
  /// GPU where the model's input is f32, and waited for by run().
  void prepare(const Picture& picture, std::int64_t slot);
  /// Runs the batch, in which at least one slot was prepared; the results of the others mean nothing. Errors about the
  /// output and the labels come here where a run gives the output its shape.
  void run();
  /// The `count` best classes of a slot, best first. Between run() and the next prepare().
  std::vector<ClassResult> top(std::int64_t slot, std::size_t count) const;

 private:
  Model model_;
  Card card_;
  BoundCard bound_;
  std::int64_t batch_;
  DType input_dtype_;
  Runner runner_;
  bool late_;  // a run gives the output its shape
  std::optional<std::filesystem::path> labels_file_;
  Tensor input_, output_;          // input: f32, for a model that takes bytes; else the Runner's is used
  std::int64_t output_elems_ = 0;  // of one photo; 0: not known yet
  std::vector<std::string> labels_;
};

}  // namespace lenslet::tool
