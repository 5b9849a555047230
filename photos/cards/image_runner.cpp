#include "photos/cards/image_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "lenslet/error.h"
#include "photos/dtype_convert.h"

namespace lenslet::photos {

PlanOptions with_shape(const Model& model, const Card& card, const BoundCard& bound, PlanOptions plan) {
  if (const auto read = std::ranges::count(model.inputs(), false, &PortInfo::unread); read != 1)
    throw Error(ErrorKind::unsupported, fmt::format("photos fill one input, the model reads {}", read), model.name());
  const PortInfo& port = model.inputs()[bound.input];
  const std::int64_t channels = card.spec.channels == ImageSpec::Channels::gray ? 1 : 3;
  const bool free_size = std::any_of(port.dims.begin() + 1, port.dims.end(), [](std::int64_t dim) { return dim < 0; });
  if (free_size)
    plan.input_shapes = {{port.name, card.spec.nhwc ? Shape{plan.batch, card.spec.height, card.spec.width, channels}
                                                    : Shape{plan.batch, channels, card.spec.height, card.spec.width}}};
  return plan;
}

bool is_late(const PlanInfo& plan, std::size_t output) {
  return std::ranges::find(plan.late_outputs, output) != plan.late_outputs.end();
}

void check_float(const Model& model, std::size_t output) {
  if (const PortInfo& port = model.outputs()[output]; !is_float(port.dtype))
    throw Error(ErrorKind::unsupported,
                fmt::format("the output {} is {}; wanted a float output", port.name, to_string(port.dtype)),
                model.name());
}

ImageRunner::ImageRunner(const Model& model, const Card& card, PlanOptions plan)
    : bound_(bind_card(card, model)),
      spec_(card.spec),
      batch_(plan.batch),
      dtype_(model.inputs()[bound_.input].dtype),
      runner_(model, with_shape(model, card, bound_, std::move(plan))) {
  if (!is_float(dtype_) && dtype_ != DType::u8)
    throw Error(ErrorKind::unsupported,
                fmt::format("the input is {}; photos fill float and uint8 inputs", to_string(dtype_)), model.name());
  if (is_float(dtype_)) return;
  input_ = Tensor(DType::f32, runner_.plan().inputs.at(bound_.input).second);
  for (float& value : input_.values<float>()) value = 0;
}

void ImageRunner::prepare(const ImageView& image, std::int64_t slot) {
  if (is_float(dtype_))
    runner_.load_image(bound_.input, image, spec_, slot);
  else
    to_input(image, spec_, input_, slot);
}

std::span<const Tensor> ImageRunner::run() {
  if (is_float(dtype_)) return runner_.run_loaded();
  std::vector<Tensor> inputs(bound_.input + 1);  // inputs after this one are not read
  inputs.back() = to_bytes(input_);
  return runner_.run(inputs);
}

}  // namespace lenslet::photos
