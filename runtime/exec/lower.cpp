#include "runtime/exec/lower.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/cuda_built.h"
#include "base/thread_pool.h"
#include "ops/core/conv_algorithms.h"
#include "runtime/graph/file_types.h"
#include "runtime/graph/infer_shapes.h"
#include "runtime/passes/checked_passes.h"

namespace lenslet {

namespace {

constexpr int most_threads = 1024;

void check_disabled(const std::vector<std::string>& disabled) {
  for (const std::string& name : disabled) {
    const auto all = passes();
    const auto found = std::find_if(all.begin(), all.end(), [&](const Pass& pass) { return pass.name == name; });
    if (found == all.end()) {
      std::vector<std::string_view> optional;
      for (const Pass& pass : all)
        if (pass.optional) optional.push_back(pass.name);
      throw Error(
          ErrorKind::invalid_argument,
          fmt::format("there is no graph pass '{}'; those that can be left out: {}", name, fmt::join(optional, ", ")));
    }
    if (!found->optional)
      throw Error(ErrorKind::invalid_argument, fmt::format("graph pass '{}' cannot be left out", name));
  }
}

// Checked once here, rather than by each convolution; also covers networks without any.
void check_algorithm(DeviceKind device, const std::string& name) {
  if (name.empty()) return;
  std::vector<std::string_view> known;
  for (const Kernel* const kernel : conv_algorithms(device)) known.push_back(kernel->name());
  if (std::ranges::find(known, current_kernel_name(name)) != known.end()) return;
  throw Error(ErrorKind::invalid_argument,
              fmt::format("no convolution algorithm is called '{}'; there are: {}", name, fmt::join(known, ", ")));
}

void check_numerics(const DeviceChoice& device, const Numerics& numerics) {
  if (to_string(numerics) == "?")
    throw Error(ErrorKind::unsupported,
                fmt::format("there is no arithmetic that stores {} and sums in {}, of these products",
                            to_string(numerics.storage), to_string(numerics.accumulate)));
  if (!device.is_cuda() && numerics != Numerics() && numerics != parse_numerics("bf16"))
    throw Error(ErrorKind::unsupported, fmt::format("precision {} is CUDA's; the CPU computes in fp32 and bf16{}{}",
                                                    to_string(numerics), device.note.empty() ? "" : "; ", device.note));
}

void check_stage(const std::string& stage) {
  if (stage.empty() || stage == "load" || stage == "infer" || stage == "plan") return;
  const std::vector<std::string> known = pass_names();
  if (std::find(known.begin(), known.end(), stage) != known.end()) return;
  throw Error(ErrorKind::invalid_argument,
              fmt::format("there is no stage '{}'; stages: load, infer, {}, plan", stage, fmt::join(known, ", ")));
}

// An unspecified free first dimension was taken for the batch; the error says so if that does not fit.
std::vector<WaitingNode> infer_bound(Graph& graph, const PlanOptions& options) {
  try {
    return infer_known_shapes(graph);
  } catch (const Error& error) {
    const auto given = [&](const PortInfo& port) {
      const auto names = [&](const auto& named) { return named.first == port.name; };
      return std::ranges::any_of(options.input_shapes, names) || std::ranges::any_of(options.input_values, names);
    };
    const auto assumed = std::ranges::find_if(graph.input_ports, [&](const PortInfo& port) {
      return !port.unread && !port.dims.empty() && port.dims[0] < 0 && !given(port);
    });
    if (assumed == graph.input_ports.end()) throw;
    throw Error(error.kind(),
                fmt::format("{} (input {} {} was taken for a batch of {}: --batch or --shape say another; "
                            "PlanOptions::batch and input_shapes, in Python batch= and shapes=)",
                            error.message(), assumed->name, assumed->str(), options.batch),
                error.context());
  }
}

}  // namespace

int resolve_threads(int threads) {
  if (threads < 0 || threads > most_threads)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("{} threads; 0 (all cores) to {} are allowed", threads, most_threads));
  return threads == 0 ? available_cores() : threads;
}

DeviceProfile profile_of(const DeviceChoice& device, const PlanOptions& options) {
  if constexpr (cuda_built)
    if (device.is_cuda()) return cuda::device_profile(device.cuda_index);
  return cpu_profile(resolve_threads(options.threads));
}

void apply_early_passes(Graph& graph) {
  const DeviceProfile none;
  for (const Pass& pass : passes().first(passes_before_inference)) pass.run(graph, {.target = {none}});
}

Lowered lower(ModelImpl& model, const PlanOptions& options, const DeviceChoice& device, const DeviceProfile& profile,
              const std::string& stage) {
  check_disabled(options.disabled_passes);
  check_stage(stage);
  check_algorithm(device_kind(device), options.conv_algorithm);
  if (options.numerics) check_numerics(device, *options.numerics);
  if (stage == "load") return {model.source};
  Lowered made{model.typed};
  Graph& graph = made.graph;
  for (const Pass& early : passes().first(passes_before_inference))
    if (early.name == stage) return made;
  bind_inputs(graph, options.batch, options.input_shapes, options.input_values);
  if (const std::vector<WaitingNode> waiting = infer_bound(graph, options); !waiting.empty())
    made.late = std::make_shared<const LatePart>(split_late(graph, waiting));
  if (stage == "infer") return made;
  made.numerics = options.numerics ? *options.numerics : device.is_cuda() ? numerics_in_file(graph) : Numerics();
  PassContext context{.target = {profile, made.numerics},
                      .device = device.id,
                      .types_of_file = !options.numerics,
                      .forced_algorithm = options.conv_algorithm,
                      .forced_where_accepted = options.conv_algorithm_where_accepted,
                      .layer_algorithms = options.layer_algorithms};
  if (made.late != nullptr)
    std::erase_if(context.layer_algorithms, [&](const auto& layer) { return made.late->plans(layer.first); });
  CheckedPasses checked(graph, context);
  for (const Pass& pass : passes().subspan(passes_before_inference)) {
    if (std::ranges::count(options.disabled_passes, pass.name) == 0) checked.run(pass);
    if (pass.name == stage) return made;
  }
  graph.check();
  return made;
}

}  // namespace lenslet
