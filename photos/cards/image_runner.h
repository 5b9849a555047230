#pragma once
// A Runner whose one input is photos: what Classifier and Detector share.

#include <cstdint>
#include <span>

#include "lenslet/card.h"
#include "lenslet/runner.h"

namespace lenslet::photos {

/// `plan` for images of the card's size, which sets the height and width that a model leaves free. Error(unsupported)
/// unless the model reads one input.
PlanOptions with_shape(const Model& model, const Card& card, const BoundCard& bound, PlanOptions plan);
/// Whether the shape of this output is known only in a run.
bool is_late(const PlanInfo& plan, std::size_t output);
/// Error(unsupported) for an output of another type.
void check_float(const Model& model, std::size_t output);

class ImageRunner {
 public:
  /// `plan.batch` images a run. Errors as of bind_card and Runner, Error(unsupported) for an input of whole numbers
  /// other than uint8.
  ImageRunner(const Model& model, const Card& card, PlanOptions plan);

  const BoundCard& bound() const { return bound_; }
  const PlanInfo& plan() const { return runner_.plan(); }
  std::int64_t batch() const { return batch_; }
  /// Into a slot of the next batch, as Classifier::prepare().
  void prepare(const ImageView& image, std::int64_t slot);
  /// Outputs in the order of Model::outputs(), valid until the next prepare().
  std::span<const Tensor> run();

 private:
  BoundCard bound_;
  ImageSpec spec_;
  std::int64_t batch_;
  DType dtype_;  // of the input
  Runner runner_;
  Tensor input_;  // f32, for a model that takes bytes; otherwise the Runner's is used
};

}  // namespace lenslet::photos
