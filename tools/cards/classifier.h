#pragma once
// Photos through a model: what `lenslet classify` does between reading files and printing.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
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

/// Does the output look like probabilities: nothing outside [0, 1], and a sum of 1?
bool are_probabilities(std::span<const float> scores);

/// The `count` best classes of one image's output, best first, without labels: probabilities, unless card and values
/// say that these are scores of another kind. The card's class_offset is less than the number of scores.
std::vector<ClassResult> best_classes(const Card& card, std::vector<float> scores, std::size_t count);

/// A model, its card and its labels, planned for up to `plan.batch` photos at once. Not thread-safe.
class Classifier {
 public:
  /// Error kinds of bind_card, read_labels and Runner. Without `labels` results have none.
  Classifier(const Model& model, const Card& card, const std::optional<std::filesystem::path>& labels,
             PlanOptions plan);

  std::int64_t batch() const { return batch_; }
  std::int64_t classes() const { return output_elems_ - card_.class_offset; }  ///< labels have to be as many
  const PlanInfo& plan() const { return runner_.plan(); }
  /// Resizes, crops and normalises into `slot` of the next batch, 0 <= slot < batch(). On CUDA this is queued for the
  /// GPU where the model's input is f32, and waited for by run().
  void prepare(const Picture& picture, std::int64_t slot);
  /// Runs the batch, in which at least one slot was prepared; the results of the others mean nothing.
  void run();
  /// The `count` best classes of a slot, best first. As remark(), between run() and the next prepare().
  std::vector<ClassResult> top(std::int64_t slot, std::size_t count) const;
  /// Whether top() gives probabilities of that slot, and not scores of another range.
  bool gives_probabilities(std::int64_t slot) const;
  /// What is odd about the output of a slot, given the card's output.softmax; "" when nothing is.
  std::string remark(std::int64_t slot) const;

 private:
  std::vector<float> raw_scores(std::int64_t slot) const;

  Card card_;
  BoundCard bound_;
  std::int64_t batch_;
  DType input_dtype_;
  Runner runner_;
  Tensor input_, output_;          // input: f32, for a model that takes bytes; else the Runner's is used
  std::int64_t output_elems_ = 0;  // of one photo
  std::vector<std::string> labels_;
};

}  // namespace lenslet::tool
