#include "runtime/exec/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string_view>
#include <unordered_set>

#include "base/cuda_built.h"
#include "base/float_environment.h"
#include "runtime/exec/cuda/device_memory.h"
#include "runtime/exec/describe_step.h"
#include "runtime/exec/lower.h"
#include "runtime/exec/place.h"

namespace lenslet {

namespace {

// Constants derived by passes (folded scales, biases) are new objects in every plan; up to this size their bytes are
// part of the cache key.
constexpr std::size_t inline_key_bytes = 4 << 10;

// Key of a constant: its address if it belongs to the loaded graph, which lives as long as the Model; else its bytes.
void add_constant(PreparedKey& key, const Tensor& constant, const std::unordered_set<const void*>& source_memory) {
  key.text += fmt::format("|{}{}{}", to_string(constant.dtype()), constant.shape().str(), to_string(constant.format()));
  const std::string_view bytes(static_cast<const char*>(constant.data()), constant.bytes());
  if (source_memory.contains(constant.data())) {
    key.text += fmt::format("@{}", constant.data());
  } else if (bytes.size() <= inline_key_bytes) {
    key.text += ':';
    key.text += bytes;
  } else {
    key.text += fmt::format("#{:x}", std::hash<std::string_view>()(bytes));
    key.constants.push_back(constant);
  }
}

// Key of a blob's sources: constants that run() does not read itself.
void add_prepared(PreparedKey& key, const Problem& problem, const Candidate& candidate,
                  const std::unordered_set<const void*>& source_memory) {
  for (std::size_t i = 0; i < problem.inputs().size(); ++i) {
    const InputInfo& input = problem.inputs()[i];
    if (input.present && input.constant != nullptr && (candidate.reads & input_bit(i)) == 0)
      add_constant(key, *input.constant, source_memory);
    else
      key.text += "|-";
  }
}

// An entry of the Model's cache. Device memory is freed with that device current.
PreparedWeights hold(std::shared_ptr<const void> data, std::size_t bytes, int cuda_index) {
  const void* const address = data.get();
  return {std::shared_ptr<const void>(address,
                                      [=, data = std::move(data)](const void*) mutable {
                                        if constexpr (cuda_built)
                                          if (cuda_index >= 0) cuda::release(cuda_index, data);
                                        data.reset();
                                      }),
          bytes};
}

class PlanBuilder {
 public:
  // Without `runnable`, nothing is bound, packed or uploaded, only counted.
  PlanBuilder(ModelImpl& model, const PlanOptions& options, std::shared_ptr<ThreadPool>& pool, bool runnable)
      : model_(model), options_(options), pool_(pool), runnable_(runnable) {
    // The plan outlives the caller's tensors.
    for (auto& [name, value] : options_.input_values)
      if (!value.empty()) value = value.clone();
  }

  std::shared_ptr<Plan> build() {
    plan_->info.threads = resolve_threads(options_.threads);
    plan_->device = choose_device(options_.device);
    plan_->profile = profile_of(device(), options_);
    Lowered lowered = lower(model_, options_, device(), plan_->profile);
    plan_->graph = std::move(lowered.graph);
    plan_->late = std::move(lowered.late);
    plan_->info.numerics = lowered.numerics;
    plan_->sync_each_step = options_.sync_each_step;
    plan_->flush_denormals = options_.flush_denormals;
    plan_->allocator = options_.allocator;
    name_unwanted_outputs();
    if (device().is_cuda()) {
      if constexpr (cuda_built)
        cuda::with_device(device().cuda_index, [&] {
          prepare();
          place();
          upload();
          choose_early_weights();
        });
    } else {
      prepare();
      place();
    }
    describe();
    if (plan_->late != nullptr) leave_for_later();
    return std::move(plan_);
  }

 private:
  Graph& graph() { return plan_->graph; }
  PlanStep& step_of(NodeId node) { return plan_->steps[static_cast<std::size_t>(node)]; }
  const DeviceChoice& device() const { return plan_->device; }

  // Key prefix of data on a device; the CPU's keys have none.
  PreparedKey key_of(std::string_view what) const {
    return {device().is_cuda() ? fmt::format("{}|{}", device().id, what) : std::string(what)};
  }

  // Counted once per plan.
  void count(const PreparedKey& key, std::size_t bytes, std::size_t& counted) {
    if (counted_.insert(key.text).second) counted += bytes;
  }

  // A kernel writes all its outputs, so unread ones get memory as well.
  void name_unwanted_outputs() {
    for (std::size_t n = 0; n < graph().nodes.size(); ++n) {
      const Node& node = graph().nodes[n];
      if (std::find(node.outputs.begin(), node.outputs.end(), no_id) == node.outputs.end()) continue;
      const std::vector<TensorType> types = graph().output_types(node);
      for (std::size_t i = 0; i < graph().nodes[n].outputs.size(); ++i) {
        if (graph().nodes[n].outputs[i] != no_id) continue;
        const ValueId id = graph().add_value(fmt::format("{}:unused{}", graph().nodes[n].name, i));
        Value& value = graph().value(id);
        value.dtype = types.at(i).dtype;
        value.shape = types.at(i).shape;
        value.typed = true;
        if (node.choice != nullptr) value.format = node.choice->candidate.outputs.at(i);
        graph().nodes[n].outputs[i] = id;
      }
    }
  }

  void prepare() {
    for (std::size_t n = 0; n < graph().nodes.size(); ++n) {
      const Node& node = graph().nodes[n];
      PlanStep step;
      step.node = static_cast<NodeId>(n);
      try {
        if (node.op->alias_input() < 0) bind(node, step);
      } catch (const Error& error) {
        throw error.within(node.label());
      }
      plan_->steps.push_back(std::move(step));
    }
    // keep_all_values includes the values inside bands.
    if (options_.keep_all_values) graph().bands.clear();
    for (const Band& band : graph().bands) prepare(band);
    if (runnable_) make_blobs();
  }

  void prepare(const Band& band) {
    std::vector<std::shared_ptr<const BoundKernel>> kernels;
    for (NodeId n = band.first; n <= band.last; ++n) kernels.push_back(step_of(n).kernel);
    PlanStep& first = step_of(band.first);
    first.band = std::make_shared<const BandRun>(band, std::move(kernels));
    first.band_last = band.last;
    first.workspace_bytes = std::max(first.workspace_bytes, first.band->workspace_bytes(plan_->info.threads));
  }

  void bind(const Node& node, PlanStep& step) {
    const Kernel& kernel = *node.choice->kernel;
    const Candidate& candidate = node.choice->candidate;
    step.problem = std::make_shared<const Problem>(node.op, graph().input_infos(node), graph().output_types(node));
    step.workspace_bytes = candidate.workspace_bytes;
    // A band's strips are sized by its kernels.
    if (runnable_ || !graph().bands.empty()) step.kernel = kernel.bind({*step.problem, candidate, plan_->profile});
    plan_->needs_cublas = plan_->needs_cublas || candidate.needs_cublas;
    const auto spec = kernel.blob(*step.problem, candidate);
    if (!spec) return;
    step.blob_bytes = spec->bytes;
    BlobOfStep wanted{step.node, key_of(fmt::format("{}|{}", node.type(), spec->key)), spec->bytes};
    add_prepared(wanted.key, *step.problem, candidate, *model_.lasting);
    count(wanted.key, spec->bytes, plan_->info.memory.prepared_bytes);
    blobs_.push_back(std::move(wanted));
  }

  // All threads pack weights, the largest first, for load balance (ResNet-50's first result with two threads: 137 ->
  // 115 ms). For a device one by one.
  void make_blobs() {
    std::stable_sort(blobs_.begin(), blobs_.end(),
                     [](const BlobOfStep& a, const BlobOfStep& b) { return a.bytes > b.bytes; });
    std::vector<PreparedKey> keys;
    for (BlobOfStep& blob : blobs_) keys.push_back(std::move(blob.key));
    const std::vector<PreparedWeights> made = model_.prepared->get(
        keys,
        [&](std::size_t i) {
          const Node& node = graph().node(blobs_[i].node);
          try {
            return hold(blob_of(node, step_of(blobs_[i].node)), blobs_[i].bytes, device().cuda_index);
          } catch (const Error& error) {
            throw error.within(node.label());
          }
        },
        workers());
    for (std::size_t i = 0; i < made.size(); ++i) step_of(blobs_[i].node).blob = made[i].data;
  }

  ThreadPool* workers() {
    if (device().is_cuda()) return nullptr;
    if (pool_ == nullptr)
      pool_ = std::make_shared<ThreadPool>(plan_->info.threads, options_.flush_denormals, options_.executor);
    pool_->start_in_this_process();
    return pool_.get();
  }

  // Packed weights are shared by all Runners, but this pool's threads may flush denormals.
  std::shared_ptr<const void> blob_of(const Node& node, const PlanStep& step) {
    const FloatEnvironment ours;
    Tensor host = prepared_blob(*node.choice->kernel, *step.problem, node.choice->candidate);
    if constexpr (cuda_built)
      if (device().is_cuda()) return cuda::upload(host);
    const auto owner = std::make_shared<const Tensor>(std::move(host));
    return std::shared_ptr<const void>(owner, owner->data());
  }

  void place() {
    std::vector<std::size_t> workspaces;
    for (const PlanStep& step : plan_->steps) workspaces.push_back(step.workspace_bytes);
    // time_device() repeats the network on the inputs of the last run.
    const bool on_cuda = device().is_cuda();
    const Placement placement = place_values(graph(), workspaces,
                                             {.keep_all = options_.keep_all_values,
                                              .keep_inputs = on_cuda,
                                              .alignment = on_cuda ? cuda_arena_alignment : arena_alignment});

    MemoryReport& memory = plan_->info.memory;
    for (std::size_t n = 0; n < plan_->steps.size(); ++n) {
      plan_->steps[n].runs = placement.runs[n];
      plan_->steps[n].workspace_offset = placement.workspace_offsets[n];
      memory.workspace_bytes = std::max(memory.workspace_bytes, workspaces[n]);
    }
    plan_->offsets = placement.offsets;
    plan_->roots = placement.root;
    plan_->arena_bytes = placement.arena_bytes;
    plan_->constants.assign(graph().values.size(), nullptr);
    for (std::size_t v = 0; v < graph().values.size(); ++v) {
      const Value& root = graph().value(placement.root[v]);
      if (root.is_constant()) plan_->constants[v] = &root.constant;
      if (placement.root[v] == static_cast<ValueId>(v) && placement.first[v] >= 0)
        plan_->info.placements.push_back(
            {root.name, placement.offsets[v], root.bytes(), placement.first[v], placement.last[v]});
    }
    std::unordered_set<const void*> counted;
    for (const Value& value : graph().values)
      if (value.is_constant() && counted.insert(value.constant.data()).second)
        memory.weight_bytes += value.constant.bytes();
    memory.activation_bytes = placement.activation_bytes;
    memory.activation_sum_bytes = placement.activation_sum_bytes;
    memory.lower_bound_bytes = placement.lower_bound_bytes;
    memory.peak_bytes = placement.arena_bytes;
  }

  // Uploads the constants that kernels read, once per Model.
  void upload() {
    plan_->device_constants.resize(graph().values.size());
    for (const ValueId id : plan_->read_constants()) {
      const auto v = static_cast<std::size_t>(id);
      const Tensor& constant = *plan_->constants[v];
      PreparedKey key = key_of("constant");
      add_constant(key, constant, *model_.lasting);
      count(key, constant.bytes(), plan_->info.memory.uploaded_bytes);
      if constexpr (cuda_built)
        if (runnable_)
          plan_->device_constants[v] =
              model_.prepared
                  ->get(key, [&] { return hold(cuda::upload(constant), constant.bytes(), device().cuda_index); })
                  .data;
    }
  }

  void choose_early_weights() {
    const MemoryReport& memory = plan_->info.memory;
    plan_->early_weights =
        early_weights(plan_->step_weights(), memory.prepared_bytes + memory.uploaded_bytes, plan_->profile);
  }

  void describe() {
    PlanInfo& info = plan_->info;
    info.device = device().id;
    info.device_note = device().note;
    for (const ValueId id : graph().inputs) {
      info.inputs.emplace_back(graph().value(id).name, graph().value(id).shape);
      Tensor& fixed = plan_->input_values.emplace_back();
      for (const auto& [name, value] : options_.input_values)
        if (name == graph().value(id).name) fixed = value;
    }
    for (const ValueId id : graph().outputs) info.outputs.emplace_back(graph().value(id).name, graph().value(id).shape);
    for (const Band& band : graph().bands) info.bands.push_back({band.first, band.last, band.rows, band.reason});
    for (const PlanStep& step : plan_->steps) {
      info.steps.push_back(describe_step(graph(), step));
      const Node& node = graph().node(step.node);
      info.type_conversions += node.type() == "Cast" ? 1 : 0;
      if (node.type() != "LayoutConvert") continue;
      const bool pads = graph().value(node.outputs[0]).format.halo != Format::Halo();
      ++(pads ? info.explicit_paddings : info.layout_conversions);
    }
    describe_early_weights(plan_->early_weights, info.steps);
  }

  // The rest of a network whose shapes depend on computed data: its planning options and what is known of it.
  void leave_for_later() {
    const LatePart& late = *plan_->late;
    plan_->late_options = options_;
    plan_->late_options.batch = 1;
    plan_->late_options.device = device().id;
    plan_->late_options.input_shapes.clear();
    plan_->late_options.input_values.clear();
    std::erase_if(plan_->late_options.layer_algorithms, [&](const auto& layer) { return !late.plans(layer.first); });

    // Network outputs are copied to the host anyway; other values only because they decide shapes.
    std::unordered_set<ValueId> outputs, decides;
    for (const LatePart::Output& output : late.outputs)
      if (!output.late) outputs.insert(late.early_outputs[output.index]);
    for (const Node& node : late.on_host) decides.insert(node.inputs.begin(), node.inputs.end());
    for (std::size_t i = 0; i < late.graph.inputs.size(); ++i)
      if (late.planned_for_value[i]) decides.insert(late.graph.inputs[i]);
    PlanInfo& info = plan_->info;
    for (std::size_t i = 0; i < late.early_outputs.size(); ++i) {
      const bool is_output = outputs.contains(late.early_outputs[i]), decided = decides.contains(late.early_outputs[i]);
      plan_->stays_on_device.push_back(!is_output && !decided);
      if (is_output || !decided || !device().is_cuda()) continue;
      ++info.late_copies;
      info.late_copied_bytes += graph().value(graph().outputs[i]).bytes();
    }
    for (const Node& node : late.on_host)
      info.late.push_back(
          {node.name, std::string(node.type()), "on the host: its inputs decide its shape", late.bounds(node)});
    for (std::size_t n = 0; n < late.graph.nodes.size(); ++n) {
      const Node& node = late.graph.nodes[n];
      info.late.push_back({node.name,
                           std::string(node.type()),
                           late.reasons[n].empty() ? "follows a shape that depends on data" : late.reasons[n],
                           {}});
    }
    info.outputs.clear();
    for (const LatePart::Output& output : late.outputs) {
      const Graph& made_by = output.late ? late.graph : graph();
      const Value& value = made_by.value(made_by.outputs[output.index]);
      if (output.late) info.late_outputs.push_back(info.outputs.size());
      info.outputs.emplace_back(value.name, output.late ? Shape() : value.shape);
    }
  }

  struct BlobOfStep {
    NodeId node = no_id;
    PreparedKey key;
    std::size_t bytes = 0;
  };

  ModelImpl& model_;
  PlanOptions options_;
  std::shared_ptr<ThreadPool>& pool_;
  const bool runnable_;
  std::vector<BlobOfStep> blobs_;
  std::unordered_set<std::string> counted_;  // keys of packed weights already in the report
  std::shared_ptr<Plan> plan_ = std::make_shared<Plan>();
};

std::shared_ptr<Plan> build_plan(ModelImpl& model, const PlanOptions& options, std::shared_ptr<ThreadPool>& pool,
                                 bool runnable) {
  try {
    return PlanBuilder(model, options, pool, runnable).build();
  } catch (const Error& error) {
    throw error.within(model.source.name);
  }
}

}  // namespace

std::vector<ValueId> Plan::read_constants() const {
  std::vector<ValueId> read;
  std::vector<bool> found(constants.size());
  for (const PlanStep& step : steps) {
    if (!step.runs) continue;
    const Node& node = graph.node(step.node);
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId id = node.inputs[i];
      if (id == no_id || (node.choice->candidate.reads & input_bit(i)) == 0) continue;
      const auto v = static_cast<std::size_t>(id);
      if (constants[v] == nullptr || found[v]) continue;
      found[v] = true;
      read.push_back(id);
    }
  }
  return read;
}

std::vector<StepWeights> Plan::step_weights() const {
  std::vector<StepWeights> weights(steps.size());
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (!steps[i].runs) continue;
    const Node& node = graph.node(steps[i].node);
    const ValueId largest = largest_constant(steps[i]);
    weights[i].bytes = steps[i].blob_bytes > 0 || largest == no_id ? steps[i].blob_bytes : graph.value(largest).bytes();
    weights[i].waits = node.choice->candidate.waits_for_weights;
    weights[i].product = node.type() == "Gemm" || node.type() == "MatMul";
  }
  return weights;
}

ValueId Plan::largest_constant(const PlanStep& step) const {
  const Node& node = graph.node(step.node);
  ValueId largest = no_id;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    const ValueId id = node.inputs[i];
    if (id == no_id || (node.choice->candidate.reads & input_bit(i)) == 0) continue;
    if (constants[static_cast<std::size_t>(id)] == nullptr) continue;
    if (largest == no_id || graph.value(id).bytes() > graph.value(largest).bytes()) largest = id;
  }
  return largest;
}

std::shared_ptr<const Plan> make_plan(ModelImpl& model, const PlanOptions& options, std::shared_ptr<ThreadPool>& pool) {
  return build_plan(model, options, pool, true);
}

PlanInfo describe_plan(ModelImpl& model, const PlanOptions& options) {
  std::shared_ptr<ThreadPool> none;
  return std::move(build_plan(model, options, none, false)->info);
}

}  // namespace lenslet
