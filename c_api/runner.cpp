// Runners, and their runs.
#include <fmt/format.h>

#include <algorithm>
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

using Runners = Handles<RunnerObject>;

// A port of the model with the plan's current shape, which changes with the runner's input shapes.
lenslet_port planned_port(const std::vector<PortInfo>& declared,
                          const std::vector<std::pair<std::string, Shape>>& planned, std::size_t index) {
  if (index >= declared.size() || index >= planned.size())
    throw Error(ErrorKind::invalid_argument, fmt::format("there is no port {} of {}", index, declared.size()));
  lenslet_port port = as_c(declared[index]);
  const Shape& shape = planned[index].second;
  port.rank = shape.rank();
  for (int i = 0; i < LENSLET_MAX_RANK; ++i) {
    port.dims[i] = i < shape.rank() ? shape[i] : 0;
    port.dim_names[i] = "";
  }
  return port;
}

RunOptions run_options(RunnerObject& runner, const lenslet_tensor* outputs, std::size_t count,
                       const lenslet_run_options* options) {
  const lenslet_run_options given = taken(options, "run options");
  take_tensors(outputs, count, true, "outputs", runner.outputs);
  RunOptions made;
  made.outputs = runner.outputs;
  made.cuda_stream = given.cuda_stream;
  if (given.cancel != nullptr) made.stop = Handles<CancelObject>::get(given.cancel)->source.get_token();
  return made;
}

void remember_results(RunnerObject& runner, std::span<const Tensor> computed) {
  for (std::size_t i = 0; i < computed.size(); ++i) {
    const bool on_cuda = computed[i].empty() && i < runner.outputs.size() && runner.outputs[i].on_cuda;
    runner.results.push_back(as_c(on_cuda ? runner.outputs[i].tensor : computed[i]));
    runner.results.back().memory = on_cuda ? LENSLET_ON_CUDA : LENSLET_ON_HOST;
  }
}

}  // namespace

}  // namespace lenslet::c_api

using namespace lenslet;
using namespace lenslet::c_api;

lenslet_status lenslet_runner_create(lenslet_model* model, const lenslet_plan_options* options,
                                     lenslet_runner** runner) {
  return guarded([&] {
    check_given(runner, "runner");
    *runner = nullptr;
    const auto object = Handles<ModelObject>::get(model);
    const lenslet_plan_options given = taken(options, "plan options");
    Host host(given);
    PlanOptions made = plan_options(given);
    host.give_to(made);
    auto created = std::make_shared<RunnerObject>(object->model, made);
    *runner = Runners::add(std::move(created));
    host.take_over();
  });
}

lenslet_status lenslet_runner_free(lenslet_runner* runner) {
  return guarded([&] { Runners::free(runner); });
}

lenslet_status lenslet_runner_plan_json(lenslet_runner* runner, char** json) {
  return guarded([&] {
    check_given(json, "json");
    *json = nullptr;
    const RunnerInUse object(runner);
    *json = text_for_app(to_json(object->runner.plan()));
  });
}

lenslet_status lenslet_runner_input(lenslet_runner* runner, size_t index, lenslet_port* port) {
  return guarded([&] {
    const RunnerInUse object(runner);
    give(port, planned_port(object->model.inputs(), object->runner.plan().inputs, index), "port");
  });
}

lenslet_status lenslet_runner_output(lenslet_runner* runner, size_t index, lenslet_port* port) {
  return guarded([&] {
    const RunnerInUse object(runner);
    const PlanInfo& plan = object->runner.plan();
    lenslet_port made = planned_port(object->model.outputs(), plan.outputs, index);
    const bool late = std::ranges::find(plan.late_outputs, index) != plan.late_outputs.end();
    if (index < object->results.size() && late) {
      made.dtype = object->results[index].dtype;
      made.rank = object->results[index].rank;
      std::ranges::copy(object->results[index].dims, made.dims);
    } else if (late) {
      made.rank = -1;
    }
    give(port, made, "port");
  });
}

lenslet_status lenslet_runner_run(lenslet_runner* runner, const lenslet_tensor* inputs, size_t input_count,
                                  const lenslet_tensor* outputs, size_t output_count,
                                  const lenslet_run_options* options) {
  return guarded([&] {
    const RunnerInUse object(runner);
    object->results.clear();
    take_tensors(inputs, input_count, false, "inputs", object->inputs);
    const RunOptions made = run_options(*object, outputs, output_count, options);
    remember_results(*object, object->runner.run(object->inputs, made));
  });
}

lenslet_status lenslet_runner_run_loaded(lenslet_runner* runner, const lenslet_tensor* outputs, size_t output_count,
                                         const lenslet_run_options* options) {
  return guarded([&] {
    const RunnerInUse object(runner);
    object->results.clear();
    const RunOptions made = run_options(*object, outputs, output_count, options);
    remember_results(*object, object->runner.run_loaded(made));
  });
}

lenslet_status lenslet_runner_result(lenslet_runner* runner, size_t index, lenslet_tensor* result) {
  return guarded([&] {
    const RunnerInUse object(runner);
    if (object->results.empty())
      throw Error(ErrorKind::invalid_argument, "there is no result: nothing has run since, or it failed",
                  object->model.name());
    if (index >= object->results.size())
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("there is no output {} of {}", index, object->results.size()), object->model.name());
    give(result, object->results[index], "result");
  });
}
