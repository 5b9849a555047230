#include "tools/cards/classifier.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lenslet/error.h"
#include "tools/verbs/dtype_convert.h"

namespace lenslet::tool {

namespace {

/// The plan for images of the card's size: a model that leaves height or width free gets them here.
PlanOptions with_shape(const Model& model, const Card& card, const BoundCard& bound, PlanOptions plan) {
  if (const auto read = std::ranges::count(model.inputs(), false, &PortInfo::unread); read != 1)
    throw Error(ErrorKind::unsupported, fmt::format("classify feeds one input, the model reads {}", read),
                model.name());
  const PortInfo& port = model.inputs()[bound.input];
  const std::int64_t channels = card.spec.channels == ImageSpec::Channels::gray ? 1 : 3;
  const bool free_size = std::any_of(port.dims.begin() + 1, port.dims.end(), [](std::int64_t dim) { return dim < 0; });
  if (free_size)
    plan.input_shapes = {{port.name, card.spec.nhwc ? Shape{plan.batch, card.spec.height, card.spec.width, channels}
                                                    : Shape{plan.batch, channels, card.spec.height, card.spec.width}}};
  return plan;
}

}  // namespace

bool are_probabilities(std::span<const float> scores) {
  const bool inside = std::all_of(scores.begin(), scores.end(), [](float s) { return s >= 0.0f && s <= 1.0f; });
  // float16 outputs of a thousand classes miss 1 by some thousandths, a softmax in 8-bit steps by its tail: a tenth of
  // mobilenetv2-int8-qdq's. Logits that all lie between 0 and 1 hardly ever come so near.
  return inside && std::abs(std::accumulate(scores.begin(), scores.end(), 0.0) - 1.0) < 0.15;
}

std::vector<ClassResult> best_classes(const Card& card, std::vector<float> scores, std::size_t count) {
  // A second softmax would flatten probabilities to almost nothing; logits do not sum to 1 by chance. remark() tells.
  if (card.softmax.value_or(true) && !are_probabilities(scores)) softmax(scores);
  // Outputs below the offset (a background class, as some exports have) are no classes of the labels.
  const auto skipped = static_cast<std::size_t>(std::max<std::int64_t>(card.class_offset, 0));
  const std::int64_t shift = static_cast<std::int64_t>(skipped) - card.class_offset;
  std::vector<ClassResult> best;
  for (const ClassScore& score : top_k(std::span(scores).subspan(skipped), count))
    best.push_back({score.index + shift, {}, score.score});
  return best;
}

Classifier::Classifier(const Model& model, const Card& card, const std::optional<std::filesystem::path>& labels,
                       PlanOptions plan)
    : card_(card),
      bound_(bind_card(card, model)),
      batch_(plan.batch),
      input_dtype_(model.inputs()[bound_.input].dtype),
      runner_(model, with_shape(model, card, bound_, std::move(plan))) {
  const Shape& shape = runner_.plan().inputs.at(bound_.input).second;
  const Shape& result = runner_.plan().outputs.at(bound_.output).second;
  if (result.rank() < 1 || result[0] != batch_ || result.elems() < batch_)
    throw Error(ErrorKind::unsupported,
                fmt::format("the output {} of a batch of {} holds no classes for each image", result.str(), batch_),
                model.name());
  const auto dims = result.dims().subspan(1);
  if (std::count_if(dims.begin(), dims.end(), [](std::int64_t dim) { return dim > 1; }) > 1)
    throw Error(ErrorKind::unsupported,
                fmt::format("the output {} {} is no list of classes: this network classifies nothing ('lenslet run' "
                            "gives its outputs as they are)",
                            runner_.plan().outputs.at(bound_.output).first, result.str()),
                model.name());
  if (!is_float(input_dtype_) && input_dtype_ != DType::u8)
    throw Error(ErrorKind::unsupported,
                fmt::format("the input is {}; classify fills float and uint8 inputs", to_string(input_dtype_)),
                model.name());
  output_elems_ = result.elems() / batch_;
  if (!is_float(input_dtype_)) {
    input_ = Tensor(DType::f32, shape);
    for (float& value : input_.values<float>()) value = 0;
  }
  const auto& file = labels ? labels : card.labels;
  if (file) labels_ = read_labels(*file, classes());
}

void Classifier::prepare(const Picture& picture, std::int64_t slot) {
  if (is_float(input_dtype_))
    runner_.load_image(bound_.input, picture.view(), card_.spec, slot);
  else
    to_input(picture.view(), card_.spec, input_, slot);
}

void Classifier::run() {
  std::span<const Tensor> outputs;
  if (is_float(input_dtype_)) {
    outputs = runner_.run_loaded();
  } else {
    std::vector<Tensor> inputs(bound_.input + 1);  // the others are not read
    inputs.back() = to_bytes(input_);
    outputs = runner_.run(inputs);
  }
  output_ = outputs[bound_.output];
}

std::vector<float> Classifier::raw_scores(std::int64_t slot) const {
  const Tensor scores = convert_float(output_, DType::f32);
  const auto values = scores.values<float>().subspan(static_cast<std::size_t>(slot * output_elems_),
                                                     static_cast<std::size_t>(output_elems_));
  return {values.begin(), values.end()};
}

std::vector<ClassResult> Classifier::top(std::int64_t slot, std::size_t count) const {
  std::vector<ClassResult> best = best_classes(card_, raw_scores(slot), count);
  for (ClassResult& result : best)
    if (result.index < static_cast<std::int64_t>(labels_.size()))
      result.label = labels_[static_cast<std::size_t>(result.index)];
  return best;
}

bool Classifier::gives_probabilities(std::int64_t slot) const {
  return card_.softmax.value_or(true) || are_probabilities(raw_scores(slot));
}

std::string Classifier::remark(std::int64_t slot) const {
  if (!card_.softmax) return {};
  const std::vector<float> scores = raw_scores(slot);
  if (*card_.softmax && are_probabilities(scores))
    return "the card's output.softmax is true, but the output already is probabilities: they are left as they are";
  if (!*card_.softmax && !are_probabilities(scores))
    return "the card's output.softmax is false, but the output is no probabilities: scores are shown as they are";
  return {};
}

}  // namespace lenslet::tool
