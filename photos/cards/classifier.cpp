#include "lenslet/classifier.h"

#include <fmt/format.h>

#include <algorithm>

#include "lenslet/error.h"
#include "photos/dtype_convert.h"

namespace lenslet {

using namespace photos;

namespace {

/// Plans for images of the card's size, which sets the height and width that a model leaves free.
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

/// `late`: the shape is known only in a run and is not checked.
void check_output(const Model& model, const Card& card, const BoundCard& bound, const Shape& result, bool late,
                  std::int64_t batch) {
  const std::string& name = model.outputs()[bound.output].name;
  if (const DType dtype = model.outputs()[bound.output].dtype; !is_float(dtype))
    throw Error(ErrorKind::unsupported,
                fmt::format("the output {} is {}; classify reads float outputs", name, to_string(dtype)), model.name());
  if (late) return;
  if (result.rank() < 1 || result[0] != batch || result.elems() < batch)
    throw Error(ErrorKind::unsupported,
                fmt::format("the output {} of a batch of {} holds no classes for each image", result.str(), batch),
                model.name());
  const auto dims = result.dims().subspan(1);
  if (std::count_if(dims.begin(), dims.end(), [](std::int64_t dim) { return dim > 1; }) > 1)
    throw Error(ErrorKind::unsupported,
                fmt::format("the output {} {} is no list of classes: this network classifies nothing ('lenslet run' "
                            "gives its outputs as they are)",
                            name, result.str()),
                model.name());
  if (card.class_offset >= result.elems() / batch)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("the card's output.class_offset {} contradicts the output {} {}", card.class_offset, name,
                            result.str()),
                model.name());
}

/// Whether the shape is known only in a run.
bool is_late(const PlanInfo& plan, std::size_t output) {
  return std::ranges::find(plan.late_outputs, output) != plan.late_outputs.end();
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
      bound_(bind_card(card, model)),
      batch_(plan.batch),
      input_dtype_(model.inputs()[bound_.input].dtype),
      runner_(model, with_shape(model, card, bound_, std::move(plan))),
      late_(is_late(runner_.plan(), bound_.output)),
      labels_file_(labels ? labels : card.labels) {
  const Shape& shape = runner_.plan().inputs.at(bound_.input).second;
  const Shape& result = runner_.plan().outputs[bound_.output].second;
  check_output(model, card_, bound_, result, late_, batch_);
  if (!is_float(input_dtype_) && input_dtype_ != DType::u8)
    throw Error(ErrorKind::unsupported,
                fmt::format("the input is {}; classify fills float and uint8 inputs", to_string(input_dtype_)),
                model.name());
  if (!late_) output_elems_ = result.elems() / batch_;
  if (!is_float(input_dtype_)) {
    input_ = Tensor(DType::f32, shape);
    for (float& value : input_.values<float>()) value = 0;
  }
  if (labels_file_) labels_ = read_labels(*labels_file_, classes());
}

std::int64_t Classifier::classes() const { return output_elems_ > 0 ? output_elems_ - card_.class_offset : -1; }

void Classifier::prepare(const ImageView& picture, std::int64_t slot) {
  if (is_float(input_dtype_))
    runner_.load_image(bound_.input, picture, card_.spec, slot);
  else
    to_input(picture, card_.spec, input_, slot);
}

void Classifier::run() {
  std::span<const Tensor> outputs;
  if (is_float(input_dtype_)) {
    outputs = runner_.run_loaded();
  } else {
    std::vector<Tensor> inputs(bound_.input + 1);  // inputs after this one are not read
    inputs.back() = to_bytes(input_);
    outputs = runner_.run(inputs);
  }
  if (late_) check_output(model_, card_, bound_, outputs[bound_.output].shape(), false, batch_);
  output_ = outputs[bound_.output];
  if (!late_) return;
  output_elems_ = output_.shape().elems() / batch_;
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
