// Observers and their access to a step's tensors.
#include <fmt/format.h>

#include "c_api/objects.h"
#include "c_api/structs.h"
#include "c_api/tensors.h"
#include "lenslet/c_api.h"

namespace lenslet::c_api {

namespace {

using Events = Handles<EventObject>;

// A handle valid for the duration of the callback.
class EventHandle {
 public:
  explicit EventHandle(const LayerEvent& event)
      : object_(std::make_shared<EventObject>(event)), values_(Events::add(object_)) {}
  ~EventHandle() {
    Events::free(values_);
    const std::lock_guard lock(object_->mutex);
    object_->event = nullptr;
  }
  EventHandle(const EventHandle&) = delete;
  EventHandle& operator=(const EventHandle&) = delete;
  lenslet_event_values* values() const { return values_; }

 private:
  std::shared_ptr<EventObject> object_;
  lenslet_event_values* values_;
};

void call(lenslet_observer observer, void* context, const LayerEvent& event) {
  const EventHandle handle(event);
  lenslet_event made{};
  made.struct_size = sizeof(made);
  made.name = event.info->name.c_str();
  made.op = event.info->op.c_str();
  made.algorithm = event.info->algorithm.c_str();
  made.ms = event.ms;
  made.step = event.step;
  made.inputs = event.inputs.size();
  made.outputs = event.outputs.size();
  made.values = handle.values();
  if (observer(context, &made) != 0)
    throw Error(ErrorKind::cancelled, fmt::format("the observer ended the run after step {}", event.step));
}

void give_value(const lenslet_event_values* values, std::span<const Tensor> LayerEvent::*of, std::size_t index,
                lenslet_tensor* to) {
  const auto object = Events::get(values);
  const std::lock_guard lock(object->mutex);
  if (object->event == nullptr) throw Error(ErrorKind::invalid_argument, "the observer's call is over");
  const std::span<const Tensor> tensors = object->event->*of;
  if (index >= tensors.size())
    throw Error(ErrorKind::invalid_argument, fmt::format("there is no value {} of {}", index, tensors.size()));
  const Tensor& tensor = tensors[index];
  const bool as_is = tensor.empty() || tensor.shape().rank() != 4 || tensor.format() == formats::nchw;
  if (!as_is) object->copies.push_back(tensor.to_format(formats::nchw));
  give(to, as_c(as_is ? tensor : object->copies.back()), "tensor");
}

}  // namespace

}  // namespace lenslet::c_api

using namespace lenslet;
using namespace lenslet::c_api;

lenslet_status lenslet_runner_set_observer(lenslet_runner* runner, lenslet_observer observer, void* context) {
  return guarded([&] {
    const RunnerInUse object(runner);
    Observer made;
    if (observer != nullptr) made = [=](const LayerEvent& event) { call(observer, context, event); };
    object->runner.set_observer(std::move(made));
  });
}

lenslet_status lenslet_event_input(lenslet_event_values* values, size_t index, lenslet_tensor* tensor) {
  return guarded([&] { give_value(values, &LayerEvent::inputs, index, tensor); });
}

lenslet_status lenslet_event_output(lenslet_event_values* values, size_t index, lenslet_tensor* tensor) {
  return guarded([&] { give_value(values, &LayerEvent::outputs, index, tensor); });
}
