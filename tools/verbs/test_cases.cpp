#include "tools/verbs/test_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <system_error>

#include "lenslet/error.h"
#include "lenslet/runner.h"
#include "lenslet/tensor_file.h"
#include "tools/verbs/bound_run.h"
#include "tools/verbs/terminal.h"

namespace lenslet::tool {

namespace {

namespace fs = std::filesystem;

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

// PREFIX_0.pb, PREFIX_1.pb ... up to the first missing one.
std::vector<NamedTensor> read_tensors(const fs::path& folder, std::string_view prefix) {
  std::vector<NamedTensor> tensors;
  for (;;) {
    const fs::path file = folder / fmt::format("{}_{}.pb", prefix, tensors.size());
    if (!fs::exists(file)) return tensors;
    NamedTensor& read = tensors.emplace_back();
    read.tensor = read_tensor_pb(file, &read.name);
  }
}

// Positions of `tensors` by port name if all fit, else in the order of the files: some suites omit or change names.
std::vector<std::size_t> match(const std::vector<PortInfo>& ports, const std::vector<NamedTensor>& tensors) {
  std::vector<std::size_t> by_name, by_order;
  for (std::size_t p = 0; p < ports.size(); ++p) {
    by_order.push_back(p);
    for (std::size_t t = 0; t < tensors.size(); ++t)
      if (tensors[t].name == ports[p].name) {
        by_name.push_back(t);
        break;
      }
  }
  return by_name.size() == ports.size() ? by_name : by_order;
}

std::vector<fs::path> data_sets(const fs::path& folder) {
  std::vector<std::pair<long, fs::path>> found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    constexpr std::string_view prefix = "test_data_set_";
    const std::string name = entry.path().filename().string();
    if (entry.is_directory() && name.starts_with(prefix))
      found.emplace_back(std::strtol(name.c_str() + prefix.size(), nullptr, 10), entry.path());
  }
  std::sort(found.begin(), found.end());
  std::vector<fs::path> sets;
  for (auto& [number, path] : found) sets.push_back(std::move(path));
  return sets;
}

// ONNX 1.12 and older write bfloat16 test data as the uint16 of its bits.
Tensor as_declared(const Tensor& tensor, DType declared) {
  if (declared != DType::bf16 || tensor.dtype() != DType::u16) return tensor;
  Tensor bits(DType::bf16, tensor.shape());
  if (tensor.bytes() > 0) std::memcpy(bits.data(), tensor.data(), tensor.bytes());
  return bits;
}

// Some cases have data that their own model does not allow.
void refuse_contradiction(const PortInfo& port, const Tensor& tensor) {
  const auto refuse = [&](std::string_view why) {
    throw Error(ErrorKind::unsupported, fmt::format("input {}: {} {}", port.name, tensor.shape().str(), why));
  };
  if (static_cast<std::size_t>(tensor.shape().rank()) != port.dims.size())
    refuse(fmt::format("contradicts the model's {}", port.str()));
  for (int axis = 1; axis < tensor.shape().rank(); ++axis) {
    const std::int64_t declared = port.dims[static_cast<std::size_t>(axis)];
    if (declared >= 0 && declared != tensor.shape()[axis])
      refuse(fmt::format("contradicts the model's {}", port.str()));
  }
  if (tensor.dtype() != DType::f64) return;
  for (const double value : tensor.values<double>())
    if (std::isfinite(value) && std::fabs(value) > static_cast<double>(std::numeric_limits<float>::max()))
      refuse("holds values beyond float32, in which lenslet computes");
}

using Passes = std::vector<std::string>;

// Each optional pass alone, and all of them; the others are required for planning.
std::vector<Passes> left_out(const Model& model) {
  std::vector<Passes> each;
  Passes all;
  for (const std::string& pass : pass_names()) {
    try {
      PlanOptions options;
      options.disabled_passes = {pass};
      static_cast<void>(model.dump("load", options));
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::invalid_argument) continue;
      throw;
    }
    each.push_back({pass});
    all.push_back(pass);
  }
  each.push_back(std::move(all));
  return each;
}

// The same model, with the data set's values for inputs that override constants of the file.
Model overridden(const Model& model, const fs::path& file, const std::vector<NamedTensor>& inputs) {
  LoadOptions options;
  for (const NamedTensor& input : inputs)
    if (std::ranges::none_of(model.inputs(), [&](const PortInfo& port) { return port.name == input.name; }))
      options.overridden.push_back(input.name);
  try {
    return Model::load(file, options);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::invalid_argument) throw;
    return model;
  }
}

// Empty if the data set's outputs are reproduced.
std::string run_set(const Model& as_loaded, const fs::path& set, const PlanOptions& options, const Tolerance& tolerance,
                    std::span<const Passes> without, std::vector<std::string>& digests) {
  const auto inputs = read_tensors(set, "input");
  const bool more = inputs.size() > as_loaded.inputs().size();
  const Model model = more ? overridden(as_loaded, set.parent_path() / "model.onnx", inputs) : as_loaded;
  const auto expected = read_tensors(set, "output");
  const std::string where = set.filename().string();
  const auto unread = std::ranges::count_if(model.inputs(), &PortInfo::unread);
  if (inputs.size() > model.inputs().size() || inputs.size() + static_cast<std::size_t>(unread) < model.inputs().size())
    return fmt::format("{} has {} inputs, the model {}", where, inputs.size(), model.inputs().size());
  if (expected.empty() || expected.size() > model.outputs().size())
    return fmt::format("{} has {} outputs, the model {}", where, expected.size(), model.outputs().size());
  const bool all = inputs.size() == model.inputs().size();
  std::vector<PortInfo> ports;
  for (const PortInfo& port : model.inputs())
    if (all || !port.unread) ports.push_back(port);
  const std::vector<std::size_t> places = match(ports, inputs);
  std::vector<Tensor> ordered;
  for (const PortInfo& port : model.inputs()) {
    Tensor& given = ordered.emplace_back();
    if (port.unread) continue;
    const auto at = std::ranges::find(ports, port.name, &PortInfo::name) - ports.begin();
    const Tensor& tensor = inputs[places[static_cast<std::size_t>(at)]].tensor;
    refuse_contradiction(port, tensor);
    given = as_declared(tensor, port.dtype);
  }
  const auto run = [&](PlanOptions plan, std::vector<std::string>* seen) -> std::string {
    Runner runner = runner_for(model, ordered, plan);
    const auto outputs = runner.run(ordered);
    if (seen != nullptr)
      for (const Tensor& output : outputs) seen->push_back(digest(output));
    const auto positions =
        expected.size() == outputs.size() ? match(model.outputs(), expected) : std::vector<std::size_t>();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const NamedTensor& wanted = expected[positions.empty() ? i : positions[i]];
      const std::string wrong = difference(outputs[i], as_declared(wanted.tensor, outputs[i].dtype()), tolerance);
      if (!wrong.empty()) return fmt::format("{}: output {}: {}", where, model.outputs()[i].name, wrong);
    }
    return {};
  };
  std::string reason = run(options, &digests);
  for (std::size_t i = 0; i < without.size() && reason.empty(); ++i) {
    PlanOptions plan = options;
    plan.disabled_passes.insert(plan.disabled_passes.end(), without[i].begin(), without[i].end());
    const std::string which = without[i].size() == 1 ? "without " + without[i][0] : "without passes";
    try {
      reason = run(std::move(plan), nullptr);
      if (!reason.empty()) reason = which + ": " + reason;
    } catch (const Error& error) {
      // Without the pass, a node that it removes may have no kernel.
      if (error.kind() != ErrorKind::unsupported && error.kind() != ErrorKind::limit)
        reason = which + ": " + first_line(error);
    }
  }
  return reason;
}

// An unreadable folder counts, and so does one whose model.onnx is a broken link: running them reports the reason.
void find_below(const fs::path& folder, std::vector<fs::path>& cases) {
  std::error_code error, ignored;
  const bool is_case = fs::symlink_status(folder / "model.onnx", ignored).type() != fs::file_type::not_found;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (!entry->is_symlink(ignored) && entry->is_directory(ignored)) find_below(entry->path(), cases);
  if (is_case || error) cases.push_back(folder);
}

}  // namespace

std::string_view to_string(CaseResult::Status status) {
  switch (status) {
    case CaseResult::Status::passed:
      return "passed";
    case CaseResult::Status::failed:
      return "failed";
    case CaseResult::Status::unsupported:
      return "unsupported";
  }
  return "?";
}

std::vector<fs::path> find_cases(const fs::path& root) {
  std::error_code error;
  if (!fs::is_directory(root, error)) throw Error(ErrorKind::io, "is not a folder", root.string());
  std::vector<fs::path> cases;
  find_below(root, cases);
  std::sort(cases.begin(), cases.end());
  return cases;
}

CaseResult run_case(const fs::path& folder, PlanOptions options, const Tolerance& tolerance, bool each_pass) {
  using Status = CaseResult::Status;
  try {
    const auto sets = data_sets(folder);
    if (sets.empty()) return {Status::failed, "there is no test_data_set_0", {}};
    const Model model = Model::load(folder / "model.onnx");
    const std::vector<Passes> without = each_pass ? left_out(model) : std::vector<Passes>();
    CaseResult result;
    for (const fs::path& set : sets) {
      result.reason = run_set(model, set, options, tolerance, without, result.digests);
      if (result.reason.empty()) continue;
      result.status = Status::failed;
      break;
    }
    return result;
  } catch (const Error& error) {
    const bool refused = error.kind() == ErrorKind::unsupported || error.kind() == ErrorKind::limit;
    return {refused ? Status::unsupported : Status::failed, first_line(error), {}};
  } catch (const fs::filesystem_error& error) {
    return {Status::failed,
            fmt::format("{} cannot be read: {}", error.path1().filename().string(), error.code().message()),
            {}};
  }
}

}  // namespace lenslet::tool
