#include "ops/core/kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "ops/core/rows.h"

namespace lenslet {

Problem::Problem(std::shared_ptr<const Op> op, std::span<const InputInfo> inputs, std::vector<TensorType> outputs)
    : op_(std::move(op)), inputs_(inputs.begin(), inputs.end()), outputs_(std::move(outputs)) {
  if (outputs_.empty()) outputs_ = op_->infer(inputs);
  constants_.reserve(inputs_.size());
  for (InputInfo& input : inputs_)
    if (input.constant != nullptr) input.constant = &constants_.emplace_back(*input.constant);
}

double Problem::bytes() const {
  double bytes = 0;
  const auto add = [&](const TensorType& type) {
    bytes += static_cast<double>(type.shape.elems()) * static_cast<double>(dtype_bytes(type.dtype));
  };
  for (const InputInfo& input : inputs_)
    if (input.present) add(input.type);
  for (const TensorType& output : outputs_) add(output);
  return bytes;
}

std::optional<BlobSpec> Kernel::blob(const Problem&, const Candidate&) const { return std::nullopt; }
void Kernel::prepare(const Problem&, const Candidate&, std::span<std::byte>) const {}

Tensor prepared_blob(const Kernel& kernel, const Problem& problem, const Candidate& candidate) {
  const auto spec = kernel.blob(problem, candidate);
  if (!spec) return {};
  Tensor blob = tensor_of_bytes(spec->bytes);
  kernel.prepare(problem, candidate, bytes_of(blob));
  return blob;
}

namespace {

/// A SimpleKernel as a Kernel.
class Adapter final : public Kernel {
 public:
  explicit Adapter(const SimpleKernel& row) : row_(row) {}
  std::string_view name() const override { return to_string(row_.device); }
  DeviceKind device() const override { return row_.device; }
  DTypeSet types() const override { return row_.types; }
  std::size_t typed_input() const override { return row_.typed_input; }

  Offer offer(const Problem& problem, const Target& target) const override {
    if (row_.typed_input < problem.inputs().size()) {
      const DType dtype = problem.inputs()[row_.typed_input].type.dtype;
      if (!row_.types.contains(dtype))
        return Offer::refuse(fmt::format("input {} has element type {} (supported: {})", row_.typed_input,
                                         to_string(dtype), row_.types.str()));
    }
    if (row_.refuse != nullptr)
      if (auto why = row_.refuse(problem)) return Offer::refuse(std::move(*why));
    if (row_.offer != nullptr) return row_.offer(problem, target);

    Offer offer;
    const auto list = row_.formats_for != nullptr ? row_.formats_for(problem) : row_.formats;
    for (const Format& format : list.empty() ? std::span<const Format>(nchw_only) : list) {
      Candidate candidate;
      bool any = false;  // where no tensor that moves is 4-D, there is nothing to choose
      for (const InputInfo& input : problem.inputs()) {
        const bool moves = input.present && input.constant == nullptr && input.type.shape.rank() == 4;
        any = any || moves;
        candidate.inputs.push_back(moves ? format : formats::nchw);
      }
      for (const TensorType& output : problem.outputs())
        candidate.outputs.push_back(output.shape.rank() == 4 ? format : formats::nchw);
      candidate.estimated_us = target.device.launch_us + problem.bytes() / target.device.bytes_per_us;
      candidate.tolerance = row_.tolerance_for != nullptr ? row_.tolerance_for(problem) : row_.tolerance;
      candidate.in_place = row_.in_place;
      if (format == formats::nhwc) {
        candidate.pitched_inputs = row_.pitched_inputs;
        candidate.pitched_output = row_.pitched_output;
      }
      candidate.reads = row_.reads;
      if (row_.device == DeviceKind::cpu || cuda_built)
        candidate.workspace_bytes = bind({problem, candidate, target.device})->workspace_bytes();
      offer.candidates.push_back(std::move(candidate));
      if (!any) break;
    }
    return offer;
  }

  std::optional<BlobSpec> blob(const Problem& problem, const Candidate& candidate) const override {
    return row_.blob == nullptr ? std::nullopt : row_.blob(problem, candidate);
  }
  void prepare(const Problem& problem, const Candidate& candidate, std::span<std::byte> blob) const override {
    row_.prepare(problem, candidate, blob);
  }
  std::unique_ptr<const BoundKernel> bind(const Binding& binding) const override { return row_.bind(binding); }

 private:
  const SimpleKernel& row_;
};

using KernelList = std::vector<const Kernel*>;

/// By operator and device. Built once, out of the rows of all families.
class Registry {
 public:
  Registry() {
    for (const OpRow& row : op_table())
      for (const SimpleKernel& kernel : row.parts.kernels) {
        adapters_.push_back(std::make_unique<Adapter>(kernel));
        add(row.name, adapters_.back().get());
      }
    for (const KernelRow& row : family_kernels()) add(row.op, row.kernel);
  }

  std::span<const Kernel* const> find(std::string_view op, DeviceKind device) const {
    const auto found = by_op_.find(op);
    if (found == by_op_.end()) return {};
    return found->second[static_cast<std::size_t>(device)];
  }

 private:
  void add(std::string_view op, const Kernel* kernel) {
    by_op_[op][static_cast<std::size_t>(kernel->device())].push_back(kernel);
  }

  std::vector<std::unique_ptr<Adapter>> adapters_;
  std::map<std::string_view, std::array<KernelList, device_kinds>> by_op_;
};

}  // namespace

std::span<const Kernel* const> kernels_of(std::string_view op, DeviceKind device) {
  static const Registry registry;
  return registry.find(op, device);
}

const Kernel* find_kernel(std::string_view op, DeviceKind device, std::string_view name) {
  const auto all = kernels_of(op, device);
  const auto found = std::find_if(all.begin(), all.end(), [&](const Kernel* kernel) { return kernel->name() == name; });
  return found == all.end() ? nullptr : *found;
}

DTypeSet supported_types(std::string_view op) {
  DTypeSet types;
  for (const DeviceKind device : {DeviceKind::cpu, DeviceKind::cuda})
    for (const Kernel* kernel : kernels_of(op, device)) types = types.with(kernel->types());
  return types;
}

const RowKernel* row_kernel_of(const BoundKernel& bound, const Shape& y, const Format& format) {
  const RowKernel* const rows = bound.row_kernel();
  return rows != nullptr && rows->y_shape().row_floats == element_strides(y, format)[2] ? rows : nullptr;
}

}  // namespace lenslet
