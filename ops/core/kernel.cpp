#include "ops/core/kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/aligned_format.h"
#include "base/cuda_built.h"
#include "ops/core/choose.h"
#include "ops/core/row_kernel.h"

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

bool moves(const InputInfo& input) {
  return input.present && input.constant == nullptr && input.type.shape.rank() == 4;
}

/// Runs channelwise operators on pixels with padding channels (aligned_nhwc) as if these were real channels: padding
/// channels in give padding channels out. Not for operators whose output channels depend on other channels, or on
/// parameters.
class PaddedChannels {
 public:
  static std::optional<PaddedChannels> of(const Problem& problem) {
    if (problem.outputs().size() != 1 || problem.output_shape().rank() != 4 || problem.inputs().size() > most_inputs)
      return std::nullopt;
    const std::optional<AxisMap> map = problem.op().axis_map(problem.inputs(), problem.output_shape());
    if (!map || map->keeps_order) return std::nullopt;
    const PaddedChannels padded(problem.output_shape()[1]);
    for (std::size_t i = 0; i < problem.inputs().size(); ++i) {
      const InputInfo& input = problem.inputs()[i];
      if (!input.present || input.type.shape.elems() == 1) continue;
      const AxisMap::Followed& followed = map->inputs[i];
      if (followed.parameter || !moves(input)) return std::nullopt;
      const bool stretched = followed.stretched[1] && input.type.shape[1] == 1;
      if (!stretched && (followed.axis[1] != 1 || !padded.has(input.type.shape))) return std::nullopt;
    }
    return padded;
  }

  /// True for 4-D tensors, whose channels get padded.
  bool has(const Shape& shape) const { return shape.rank() == 4 && shape[1] == channels_; }
  /// The format with a pixel pitch of `pitch` channels that an nhwc kernel runs in.
  Format format(const Shape& shape, std::int64_t pitch) const {
    Format format = formats::nhwc;
    if (has(shape) && pitch != channels_) format.pixel_pitch = pitch;
    return format;
  }
  /// Whether pixels are padded by less than 16 bytes. Beyond that lie other elements: of a slice's neighbour, say.
  bool only_pads(DType dtype, std::int64_t pitch) const { return pitch <= aligned_channels(channels_, dtype); }
  bool takes(const Problem& problem, const Candidate& candidate) const {
    const std::int64_t pitch = candidate.outputs[0].pixel_pitch;
    if (!only_pads(problem.outputs()[0].dtype, pitch)) return false;
    if (candidate.outputs[0] != format(problem.output_shape(), pitch)) return false;
    for (std::size_t i = 0; i < problem.inputs().size(); ++i)
      if (const InputInfo& input = problem.inputs()[i];
          moves(input) && candidate.inputs[i] != format(input.type.shape, pitch))
        return false;
    return true;
  }

  /// The kernel bound to the problem with padded channels.
  class Bound final : public BoundKernel {
   public:
    Bound(const SimpleKernel& row, const Binding& binding, std::int64_t channels)
        : channels_(channels), pitch_(binding.candidate.outputs[0].pixel_pitch) {
      std::vector<InputInfo> inputs(binding.problem.inputs().begin(), binding.problem.inputs().end());
      for (InputInfo& input : inputs)
        if (moves(input)) input.type.shape = widened(input.type.shape);
      TensorType output = binding.problem.outputs()[0];
      output.shape = widened(output.shape);
      problem_ = std::make_unique<Problem>(binding.problem.shared_op(), inputs, std::vector{output});
      Candidate candidate = binding.candidate;
      for (Format& format : candidate.inputs)
        if (format.pixel_pitch != 0) format = formats::nhwc;
      candidate.outputs[0] = formats::nhwc;
      kernel_ = row.bind({*problem_, candidate, binding.device});
    }
    std::size_t workspace_bytes() const override { return kernel_->workspace_bytes(); }
    std::string fault() const override { return kernel_->fault(); }
    void run(const KernelRun& run) const override {
      std::array<Tensor, most_inputs> inputs;
      for (std::size_t i = 0; i < run.inputs.size(); ++i) {
        const Tensor& x = run.inputs[i];
        const bool pitched = !x.empty() && x.format().pixel_pitch != 0;
        inputs[i] = pitched ? Tensor::share(x.dtype(), widened(x.shape()), nullptr, x.data(), formats::nhwc) : x;
      }
      Tensor& y = run.outputs[0];
      std::array<Tensor, 1> outputs{Tensor::view(y.dtype(), widened(y.shape()), y.data(), formats::nhwc)};
      KernelRun wide = run;
      wide.inputs = {inputs.data(), run.inputs.size()};
      wide.outputs = outputs;
      kernel_->run(wide);
    }

   private:
    Shape widened(const Shape& shape) const { return shape[1] == channels_ ? shape.with(1, pitch_) : shape; }

    std::int64_t channels_, pitch_;
    std::unique_ptr<const Problem> problem_;
    std::unique_ptr<const BoundKernel> kernel_;
  };
  std::unique_ptr<const BoundKernel> bind(const SimpleKernel& row, const Binding& binding) const {
    return std::make_unique<Bound>(row, binding, channels_);
  }

 private:
  static constexpr std::size_t most_inputs = 8;
  explicit PaddedChannels(std::int64_t channels) : channels_(channels) {}
  std::int64_t channels_;
};

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
    bool nhwc = false;
    for (const Format& format : list.empty() ? std::span<const Format>(nchw_only) : list) {
      offer.candidates.push_back(candidate_in(problem, target, [&](const TensorType&) { return format; }));
      nhwc = nhwc || format == formats::nhwc;
      // Nothing to choose without a 4-D activation.
      if (std::none_of(problem.inputs().begin(), problem.inputs().end(), moves)) return offer;
    }
    if (nhwc)
      if (auto padded = padded_candidate(problem, target)) offer.candidates.push_back(std::move(*padded));
    return offer;
  }

  std::optional<BlobSpec> blob(const Problem& problem, const Candidate& candidate) const override {
    return row_.blob == nullptr ? std::nullopt : row_.blob(problem, candidate);
  }
  void prepare(const Problem& problem, const Candidate& candidate, std::span<std::byte> blob) const override {
    row_.prepare(problem, candidate, blob);
  }
  std::unique_ptr<const BoundKernel> bind(const Binding& binding) const override {
    if (!binding.candidate.outputs.empty() && binding.output_format().pixel_pitch != 0)
      if (const auto padding = padded(binding.problem); padding && padding->takes(binding.problem, binding.candidate))
        return padding->bind(row_, binding);
    return row_.bind(binding);
  }

 private:
  /// A candidate in which all 4-D activations have the formats that `format_of` gives.
  template <typename FormatOf>
  Candidate candidate_in(const Problem& problem, const Target& target, const FormatOf& format_of) const {
    Candidate candidate;
    for (const InputInfo& input : problem.inputs())
      candidate.inputs.push_back(moves(input) ? format_of(input.type) : formats::nchw);
    for (const TensorType& output : problem.outputs())
      candidate.outputs.push_back(output.shape.rank() == 4 ? format_of(output) : formats::nchw);
    candidate.estimated_us = target.device.launch_us + problem.bytes() / target.device.bytes_per_us;
    candidate.tolerance = row_.tolerance_for != nullptr ? row_.tolerance_for(problem) : row_.tolerance;
    candidate.in_place = row_.in_place;
    if (row_.pitched_inputs != no_inputs && std::ranges::any_of(candidate.inputs, may_have_pitch))
      candidate.pitched_inputs = row_.pitched_inputs;
    candidate.pitched_output = row_.pitched_output && std::ranges::all_of(candidate.outputs, may_have_pitch);
    candidate.reads = row_.reads_for != nullptr ? row_.reads_for(problem) : row_.reads;
    if (row_.device == DeviceKind::cpu || cuda_built)
      candidate.workspace_bytes = bind({problem, candidate, target.device})->workspace_bytes();
    return candidate;
  }

  /// The candidate with padded pixels (home_format()), if the kernel supports them.
  std::optional<Candidate> padded_candidate(const Problem& problem, const Target& target) const {
    std::int64_t pitch = 0;
    for (const InputInfo& input : problem.inputs())
      if (moves(input)) pitch = std::max(pitch, home_format(input.type, target).pixel_pitch);
    if (pitch == 0) return std::nullopt;
    const auto padding = padded(problem);
    if (padding && problem.output_shape()[2] * problem.output_shape()[3] > 1) {
      if (padding->format(problem.output_shape(), pitch).pixel_pitch == 0) return std::nullopt;
      if (!padding->only_pads(problem.outputs()[0].dtype, pitch)) return std::nullopt;
      Candidate candidate =
          candidate_in(problem, target, [&](const TensorType& type) { return padding->format(type.shape, pitch); });
      candidate.pitched_inputs = no_inputs;
      candidate.pitched_output = false;
      return candidate;
    }
    if (!row_.skips_padding) return std::nullopt;
    return candidate_in(problem, target, [&](const TensorType& type) { return home_format(type, target); });
  }
  std::optional<PaddedChannels> padded(const Problem& problem) const {
    if (row_.device != DeviceKind::cuda || row_.blob != nullptr) return std::nullopt;
    return PaddedChannels::of(problem);
  }

  const SimpleKernel& row_;
};

using KernelList = std::vector<const Kernel*>;

/// All kernels by operator and device, built once from the rows of all families.
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

std::string_view current_kernel_name(std::string_view name) { return name == "wgmma_patch" ? "wgmma_halo" : name; }

const Kernel* find_kernel(std::string_view op, DeviceKind device, std::string_view name) {
  name = current_kernel_name(name);
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
