// Models.
#include <fmt/format.h>

#include <cstddef>
#include <span>

#include "c_api/host.h"
#include "c_api/objects.h"
#include "c_api/plan_options.h"
#include "c_api/structs.h"
#include "c_api/tensors.h"
#include "lenslet/c_api.h"
#include "lenslet/plan_json.h"

namespace lenslet::c_api {

namespace {

using Models = Handles<ModelObject>;

LoadOptions load_options(const lenslet_load_options& given) {
  LoadOptions options;
  if (given.external_data_dir != nullptr) options.external_data_dir = given.external_data_dir;
  take_names(given.overridden, given.overridden_count, "overridden inputs", options.overridden);
  return options;
}

lenslet_model* handle_of(Model model) {
  return Models::add(std::make_shared<ModelObject>(ModelObject{std::move(model)}));
}

const PortInfo& port_of(const std::vector<PortInfo>& ports, std::size_t index) {
  if (index >= ports.size())
    throw Error(ErrorKind::invalid_argument, fmt::format("there is no port {} of {}", index, ports.size()));
  return ports[index];
}

}  // namespace

Model model_of(const lenslet_model* model) { return Models::get(model)->model; }

}  // namespace lenslet::c_api

using namespace lenslet;
using namespace lenslet::c_api;

lenslet_status lenslet_model_load(const char* file, const lenslet_load_options* options, lenslet_model** model) {
  return guarded([&] {
    check_given(model, "model");
    *model = nullptr;
    check_given(file, "file");
    *model = handle_of(Model::load(file, load_options(taken(options, "load options"))));
  });
}

lenslet_status lenslet_model_load_bytes(const void* data, size_t bytes, const lenslet_load_options* options,
                                        lenslet_model** model) {
  return guarded([&] {
    check_given(model, "model");
    *model = nullptr;
    if (bytes > 0) check_given(data, "data");
    const lenslet_load_options given = taken(options, "load options");
    *model = handle_of(Model::load_bytes({static_cast<const std::byte*>(data), bytes}, load_options(given),
                                         given.name == nullptr ? "model" : given.name));
  });
}

lenslet_status lenslet_model_free(lenslet_model* model) {
  return guarded([&] { Models::free(model); });
}

lenslet_status lenslet_model_count(lenslet_model* model, size_t* inputs, size_t* outputs) {
  return guarded([&] {
    const auto object = Models::get(model);
    if (inputs != nullptr) *inputs = object->model.inputs().size();
    if (outputs != nullptr) *outputs = object->model.outputs().size();
  });
}

lenslet_status lenslet_model_input(lenslet_model* model, size_t index, lenslet_port* port) {
  return guarded([&] { give(port, as_c(port_of(Models::get(model)->model.inputs(), index)), "port"); });
}

lenslet_status lenslet_model_output(lenslet_model* model, size_t index, lenslet_port* port) {
  return guarded([&] { give(port, as_c(port_of(Models::get(model)->model.outputs(), index)), "port"); });
}

lenslet_status lenslet_model_plan_json(lenslet_model* model, const lenslet_plan_options* options, char** json) {
  return guarded([&] {
    check_given(json, "json");
    *json = nullptr;
    const auto object = Models::get(model);
    const lenslet_plan_options given = taken(options, "plan options");
    static_cast<void>(Host(given));  // only checked
    *json = text_for_app(to_json(object->model.plan(plan_options(given))));
  });
}
