#include "lenslet/classifier.h"

#include <fmt/format.h>

#include <algorithm>

#include "lenslet/error.h"
#include "photos/cards/image_runner.h"
#include "photos/dtype_convert.h"

namespace lenslet {

using namespace photos;

namespace {

/// `late`: the shape is known only in a run and is not checked.
void check_output(const Model& model, const Card& card, const BoundCard& bound, const Shape& result, bool late,
                  std::int64_t batch) {
  const std::string& name = model.outputs()[bound.output].name;
  check_float(model, bound.output);
  if (late) return;
  if (result.rank() < 1 || result[0] != batch || result.elems() < batch)
    throw Error(ErrorKind::unsupported,
                fmt::format("the output {} of a batch of {} holds no classes for each image", result.str(), batch),
                model.name());
  const auto dims = result.dims().subspan(1);
  if (std::count_if(dims.begin(), dims.end(), [](std::int64_t dim) { return dim > 1; }) > 1)
    throw Error(ErrorKind::unsupported,
                fmt::format("the output {} {} is no list of classes: this network classifies nothing "
                            "('lenslet detect' finds boxes, 'lenslet run' gives outputs as they are)",
                            name, result.str()),
                model.name());
  if (card.class_offset >= result.elems() / batch)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("the card's output.class_offset {} contradicts the output {} {}", card.class_offset, name,
                            result.str()),
                model.name());
}

}  // namespace

void check_classifies(const Model& model, const Card& card) {
  const BoundCard bound = bind_card(card, model);
  PlanOptions plan;
  plan.device = "cpu";
  plan.batch = std::max<std::int64_t>(model.inputs()[bound.input].dims[0], 1);
  const std::int64_t batch = plan.batch;
  const PlanInfo planned = model.plan(with_shape(model, card, bound, std::move(plan)));
  check_output(model, card, bound, planned.outputs[bound.output].second, is_late(planned, bound.output), batch);
}

std::vector<ClassResult> best_classes(const Card& card, std::vector<float> scores, std::size_t count) {
  if (!card.softmax)
    throw Error(ErrorKind::invalid_argument,
                "the card leaves output.softmax to the model's graph, and was bound to no model");
  if (*card.softmax) softmax(scores);
  // Outputs below the offset (such as a background class) are not classes of the labels.
  const auto skipped = static_cast<std::size_t>(std::max<std::int64_t>(card.class_offset, 0));
  const std::int64_t shift = static_cast<std::int64_t>(skipped) - card.class_offset;
  std::vector<ClassResult> best;
  for (const ClassScore& score : top_k(std::span(scores).subspan(skipped), count))
    best.push_back({score.index + shift, {}, score.score});
  return best;
}

Classifier::Classifier(const Model& model, const Card& card, const std::optional<std::filesystem::path>& labels,
                       PlanOptions plan)
    : model_(model),
      card_(bound_to(model, card)),
      runner_(std::make_unique<ImageRunner>(model, card, std::move(plan))),
      late_(is_late(runner_->plan(), bound().output)),
      labels_file_(labels ? labels : card.labels) {
  const Shape& result = runner_->plan().outputs[bound().output].second;
  check_output(model, card_, bound(), result, late_, batch());
  if (!late_) output_elems_ = result.elems() / batch();
  if (labels_file_) labels_ = read_labels(*labels_file_, classes());
}

Classifier::~Classifier() = default;
Classifier::Classifier(Classifier&&) noexcept = default;
Classifier& Classifier::operator=(Classifier&&) noexcept = default;

std::int64_t Classifier::batch() const { return runner_->batch(); }
const PlanInfo& Classifier::plan() const { return runner_->plan(); }
const BoundCard& Classifier::bound() const { return runner_->bound(); }
std::int64_t Classifier::classes() const { return output_elems_ > 0 ? output_elems_ - card_.class_offset : -1; }

void Classifier::prepare(const ImageView& picture, std::int64_t slot) { runner_->prepare(picture, slot); }

void Classifier::run() {
  output_ = runner_->run()[bound().output];
  if (!late_) return;
  check_output(model_, card_, bound(), output_.shape(), false, batch());
  output_elems_ = output_.shape().elems() / batch();
  if (labels_file_ && static_cast<std::int64_t>(labels_.size()) != classes())
    labels_ = read_labels(*labels_file_, classes());
}

std::vector<ClassResult> Classifier::top(std::int64_t slot, std::size_t count) const {
  const Tensor scores = convert_float(output_, DType::f32);
  const auto values = scores.values<float>().subspan(static_cast<std::size_t>(slot * output_elems_),
                                                     static_cast<std::size_t>(output_elems_));
  std::vector<ClassResult> best = best_classes(card_, {values.begin(), values.end()}, count);
  for (ClassResult& result : best)
    if (result.index < static_cast<std::int64_t>(labels_.size()))
      result.label = labels_[static_cast<std::size_t>(result.index)];
  return best;
}

}  // namespace lenslet
