#include "lenslet/model.h"

#include <fmt/format.h>

#include <string_view>

#include "base/boundary.h"
#include "base/cuda_built.h"
#include "ops/core/conv_algorithms.h"
#include "runtime/exec/device_name.h"
#include "runtime/exec/lower.h"
#include "runtime/exec/model_impl.h"
#include "runtime/exec/plan.h"
#include "runtime/graph/infer_shapes.h"
#include "runtime/graph/output_op.h"
#include "runtime/passes/passes.h"

namespace lenslet {

namespace {

// Limit on unused packed weights: enough to recreate a Runner whose convolutions are all Winograd (36 numbers for 9).
std::size_t unused_prepared_bytes(const Graph& graph) {
  std::size_t bytes = 0;
  for (const Value& value : graph.values)
    if (value.is_constant()) bytes += value.constant.bytes();
  return 4 * bytes;
}

std::shared_ptr<const std::unordered_set<const void*>> constant_memory(const Graph& graph) {
  auto memory = std::make_shared<std::unordered_set<const void*>>();
  for (const Value& value : graph.values)
    if (value.is_constant()) memory->insert(value.constant.data());
  return memory;
}

// A port whose only free dimension is the batch can be checked at load.
bool known_but_for_batch(const PortInfo& port) {
  for (std::size_t i = 1; i < port.dims.size(); ++i)
    if (port.dims[i] < 0) return false;
  return true;
}

// A copy of `graph` with `batch` images where the batch is free, and shapes as declared otherwise.
Graph bound_copy(const Graph& graph, std::int64_t batch) {
  std::vector<std::pair<std::string, Shape>> shapes;
  for (const PortInfo& port : graph.input_ports) {
    if (port.dims.empty() || port.dims[0] >= 0) continue;
    std::vector<std::int64_t> dims = port.dims;
    dims[0] = batch;
    shapes.emplace_back(port.name, Shape(std::span<const std::int64_t>(dims)));
  }
  Graph copy = graph;
  bind_inputs(copy, 1, shapes);
  return copy;
}

bool is_undeclared(const PortInfo& port, std::size_t axis) {
  return port.dims[axis] < 0 && (axis >= port.dim_names.size() || port.dim_names[axis].empty());
}

// Whether the declaration is at least as specific as the inferred shape.
bool is_complete(const PortInfo& port, const Value& inferred) {
  if (!inferred.typed) return true;
  if (port.dtype != inferred.dtype || port.dims.size() != static_cast<std::size_t>(inferred.shape.rank())) return false;
  for (std::size_t axis = 0; axis < port.dims.size(); ++axis)
    if (is_undeclared(port, axis)) return false;
  return true;
}

// `graph` with inferred shapes; values that cannot be inferred before a run are not `typed`.
Graph inferred_copy(const Graph& graph, std::int64_t batch) {
  Graph copy = bound_copy(graph, batch);
  static_cast<void>(infer_known_shapes(copy));
  return copy;
}

// Exporters may leave out the types and shapes of outputs. A dimension is known when it is the same for 1 and 2 images;
// `one` is inferred for 1.
void complete_outputs(Graph& graph, const Graph& one) {
  bool complete = true;
  for (std::size_t i = 0; i < graph.outputs.size(); ++i)
    complete = complete && is_complete(graph.output_ports[i], one.value(one.outputs[i]));
  if (complete) return;
  Graph two;
  try {
    two = inferred_copy(graph, 2);
  } catch (const Error&) {
    return;  // the batch is declared free, but only 1 works
  }
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
    PortInfo& port = graph.output_ports[i];
    const Value &first = one.value(one.outputs[i]), &second = two.value(two.outputs[i]);
    if (!first.typed || !second.typed || first.shape.rank() != second.shape.rank()) continue;
    port.dtype = first.dtype;
    const auto rank = static_cast<std::size_t>(first.shape.rank());
    if (port.dims.size() != rank) {
      port.dims.assign(rank, -1);
      port.dim_names.clear();
    }
    port.dim_names.resize(rank);
    for (std::size_t axis = 0; axis < rank; ++axis) {
      const int a = static_cast<int>(axis);
      if (is_undeclared(port, axis) && first.shape[a] == second.shape[a]) port.dims[axis] = first.shape[a];
    }
  }
}

// Marks the ports of unread inputs.
void find_unread(Graph& graph) {
  const auto readers = graph.readers();
  for (std::size_t i = 0; i < graph.inputs.size(); ++i)
    graph.input_ports[i].unread =
        readers[static_cast<std::size_t>(graph.inputs[i])].empty() && !graph.is_output(graph.inputs[i]);
}

// Checks and completes at load what depends on nothing but the batch, for a batch of 1. If 1 does not fit the model
// (the first dimension is no batch, or is restricted), the error differs for 2 and is left to planning.
void check_declared(Graph& graph) {
  bool free = false;
  for (const PortInfo& port : graph.input_ports) {
    if (port.unread) continue;
    if (!known_but_for_batch(port)) return;
    free = free || (!port.dims.empty() && port.dims[0] < 0);
  }
  Graph one;
  try {
    one = inferred_copy(graph, 1);
  } catch (const Error& error) {
    if (!free) throw;
    try {
      static_cast<void>(inferred_copy(graph, 2));
    } catch (const Error& of_two) {
      if (std::string_view(of_two.what()) == error.what()) throw;
    }
    return;
  }
  complete_outputs(graph, one);
}

}  // namespace

ModelImpl::ModelImpl(Graph loaded, Graph after_early_passes)
    : source(std::move(loaded)),
      typed(std::move(after_early_passes)),
      prepared(std::make_shared<PreparedCache>(unused_prepared_bytes(typed))),
      lasting(constant_memory(typed)) {}

ModelImpl::ModelImpl(Graph part, std::shared_ptr<const ModelImpl> whole)
    : source(part),
      typed(std::move(part)),
      prepared(whole->prepared),
      lasting(whole->lasting),
      whole_(std::move(whole)) {}

Model make_model(Graph graph) {
  graph.check();
  find_unread(graph);
  try {
    Graph typed = graph;
    apply_early_passes(typed);
    check_declared(typed);
    graph.output_ports = typed.output_ports;
    return Model(std::make_shared<ModelImpl>(std::move(graph), std::move(typed)));
  } catch (const Error& error) {
    throw error.within(graph.name);
  }
}

const std::shared_ptr<ModelImpl>& Model::impl() const {
  if (!impl_) throw Error(ErrorKind::invalid_argument, "this Model holds no network: it was moved from");
  return impl_;
}

const std::string& Model::name() const { return impl()->source.name; }
const std::vector<PortInfo>& Model::inputs() const { return impl()->source.input_ports; }
const std::vector<PortInfo>& Model::outputs() const { return impl()->source.output_ports; }

std::string Model::output_op(std::size_t index) const {
  return at_boundary([&] {
    if (index >= outputs().size())
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("there is no output {}: the model has {}", index, outputs().size()), name());
    return lenslet::output_op(impl()->source, index);
  });
}

std::int64_t Model::parameter_elems() const {
  std::int64_t elems = 0;
  for (const Value& value : impl()->source.values)
    if (value.is_constant() && value.dtype != DType::i64) elems += value.constant.elems();
  return elems;
}

PlanInfo Model::plan(const PlanOptions& options) const {
  return at_boundary([&] { return describe_plan(*impl(), options); });
}

MemoryReport Model::memory(std::int64_t batch) const {
  return at_boundary([&] {
    PlanOptions options;
    options.batch = batch;
    return plan(options).memory;
  });
}

std::string Model::dump(const std::string& stage, const PlanOptions& options) const {
  return at_boundary([&] {
    ModelImpl& model = *impl();
    try {
      const DeviceChoice device = choose_device(options.device);
      const Lowered made = lower(model, options, device, profile_of(device, options), stage);
      return made.late == nullptr ? made.graph.dump() : made.graph.dump() + lenslet::dump(*made.late);
    } catch (const Error& error) {
      throw error.within(model.source.name);
    }
  });
}

std::vector<std::string> pass_names() {
  return at_boundary([] {
    std::vector<std::string> names;
    for (const Pass& pass : passes()) names.emplace_back(pass.name);
    return names;
  });
}

std::vector<std::string> conv_algorithm_names(const std::string& device) {
  return at_boundary([&] {
    // CUDA's algorithm names need no device.
    const bool of_cuda = cuda_index(device) || choose_device(device).is_cuda();
    std::vector<std::string> names;
    if (of_cuda && !cuda_built) return names;
    for (const Kernel* kernel : conv_algorithms(of_cuda ? DeviceKind::cuda : DeviceKind::cpu))
      names.emplace_back(kernel->name());
    return names;
  });
}

}  // namespace lenslet
