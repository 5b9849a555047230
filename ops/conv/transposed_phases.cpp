// ConvTranspose as convolutions of stride 1, on either device: output elements with the same input window (phases.h)
// are the output channels of one convolution, run by any of Conv's kernels, and are then interleaved into y. No
// products with inserted zeros.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "base/cuda_built.h"
#include "ops/conv/conv_transpose.h"
#include "ops/conv/phases.h"
#include "ops/core/checks.h"
#include "ops/core/config_text.h"
#include "ops/core/strided_copy.h"
#include "ops/movement/strided_copy_cuda.h"

namespace lenslet {
namespace {

constexpr std::size_t alignment = 256;
std::size_t aligned(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

/// A group of phases in height by one in width.
struct Part {
  PhaseGroup h = {}, w = {};
  std::int64_t phases = 1;       ///< of both axes
  Shape z = {};                  ///< the convolution's output; without taps: [1,K,1,1]
  std::vector<float> bias = {};  ///< [phases*K], z's channels; without taps [K], the value of y. Empty: not constant
  std::unique_ptr<const Problem> conv = nullptr;  ///< null: no taps
};

class Phases {
 public:
  explicit Phases(const Problem& node)
      : has_bias(present(node.inputs(), ConvTransposeOp::bias)),
        storage(node.inputs()[ConvTransposeOp::input].type.dtype),
        problem_(node.as<ConvTransposeOp>().problem(node.inputs())),
        epilogue_(*node.op().epilogue()) {
    const auto known = [&](std::size_t i) -> const float* {
      if (i >= node.inputs().size() || node.inputs()[i].constant == nullptr) return nullptr;
      return node.inputs()[i].constant->values<float>().data();
    };
    filter_ = known(ConvTransposeOp::filter);
    bias_ = known(ConvTransposeOp::bias);
    knows_filter = filter_ != nullptr;
    knows_bias = !has_bias || bias_ != nullptr;
    for (const PhaseGroup& h : phase_groups(problem_.h))
      for (const PhaseGroup& w : phase_groups(problem_.w))
        if (!h.runs.empty() && !w.runs.empty()) parts.push_back(part(h, w));
  }

  std::vector<Part> parts;
  bool has_bias, knows_filter = false, knows_bias = false;
  DType storage;  ///< of x, z and y

  /// Whether there is one part, whose convolution writes y directly.
  bool whole() const {
    const auto same = [](const PhaseGroup& group, const TransposedAxis& axis) {
      return axis.stride == 1 && group.runs.front().from == 0 && group.out == axis.out;
    };
    return parts.size() == 1 && parts[0].conv && same(parts[0].h, problem_.h) && same(parts[0].w, problem_.w);
  }

  /// A strided copy with the first elements' offsets.
  struct Copy {
    StridedLoops loops;
    std::int64_t from = 0, to = 0;
  };
  /// Copies of a part's z, in `format`, to y, in `y_format`: the same format but for y's pixel pitch.
  std::vector<Copy> copies(const Part& part, const Format& format, const Format& y_format) const {
    const AxisSteps of_y = element_strides({problem_.n, problem_.k, problem_.h.out, problem_.w.out}, y_format);
    AxisSteps of_z = element_strides(part.z, format);
    if (!part.conv) of_z = {0, 1, 0, 0};
    const std::int64_t group_k = problem_.group_k(), of_group = group_k * part.phases * of_z[1];
    const std::int64_t of_phase_w = part.conv ? group_k * of_z[1] : 0;
    const std::int64_t of_phase_h = of_phase_w * static_cast<std::int64_t>(part.w.phases.size());
    using Loop = StridedLoops::Loop;
    std::vector<Copy> list;
    for (const PhaseGroup::Run& rows : part.h.runs)
      for (const PhaseGroup::Run& columns : part.w.runs) {
        const Loop n{problem_.n, of_z[0], of_y[0]}, g{problem_.groups, of_group, group_k * of_y[1]};
        const Loop k{group_k, of_z[1], of_y[1]};
        const Loop h{rows.count, of_z[2], problem_.h.stride * of_y[2]}, i{rows.phases, of_phase_h, of_y[2]};
        const Loop w{columns.count, of_z[3], problem_.w.stride * of_y[3]}, j{columns.phases, of_phase_w, of_y[3]};
        Copy copy;
        // In y's memory order.
        for (const Loop& loop :
             format == formats::nhwc ? std::array{n, h, i, w, j, g, k} : std::array{n, g, k, h, i, w, j})
          copy.loops.add(loop.dim, loop.from, loop.to);
        copy.from = rows.from * of_z[2] + rows.phase * of_phase_h + columns.from * of_z[3] + columns.phase * of_phase_w;
        copy.to = rows.to * of_y[2] + columns.to * of_y[3];
        list.push_back(copy);
      }
    return list;
  }

  /// Copies from w to the part's filters [phases*K][C/groups][taps of h][taps of w], taps reversed.
  std::vector<Copy> filter_copies(const Part& part) const {
    const std::int64_t taps = problem_.h.taps * problem_.w.taps, group_c = problem_.group_c();
    const std::int64_t r = part.h.taps, s = part.w.taps, group_k = problem_.group_k(), filter = group_c * r * s;
    std::vector<Copy> list;
    for (const PhaseGroup::Phase& i : part.h.phases)
      for (const PhaseGroup::Phase& j : part.w.phases) {
        Copy copy;
        copy.from = (i.tap + (r - 1) * part.h.tap_step) * problem_.w.taps + j.tap + (s - 1) * part.w.tap_step;
        copy.to = static_cast<std::int64_t>(list.size()) * group_k * filter;
        copy.loops.add(problem_.groups, group_c * group_k * taps, part.phases * group_k * filter);
        copy.loops.add(group_k, taps, filter);
        copy.loops.add(group_c, group_k * taps, r * s);
        copy.loops.add(r, -part.h.tap_step * problem_.w.taps, s);
        copy.loops.add(s, -part.w.tap_step, 1);
        list.push_back(copy);
      }
    return list;
  }
  /// Copy of [K] to [phases*K].
  Copy channel_copy(const Part& part) const {
    Copy copy;
    copy.loops.add(problem_.groups, problem_.group_k(), problem_.group_k() * part.phases);
    copy.loops.add(part.phases, 0, problem_.group_k());
    copy.loops.add(problem_.group_k(), 1, 1);
    return copy;
  }

 private:
  Part part(const PhaseGroup& h, const PhaseGroup& w) const {
    Part part{.h = h, .w = w, .phases = static_cast<std::int64_t>(h.phases.size() * w.phases.size())};
    if (h.taps == 0 || w.taps == 0) {
      part.phases = 1;  // whatever phase: the same
      part.z = {1, problem_.k, 1, 1};
      part.bias = of_channels(part, bias_);
      for (float& value : part.bias) value = static_cast<float>(apply(epilogue_.activation, double{value}));
      return part;
    }
    part.z = {problem_.n, problem_.k * part.phases, h.out, w.out};
    part.bias = of_channels(part, bias_);
    ConvProblem conv;
    conv.n = problem_.n, conv.c = problem_.c, conv.h = problem_.h.in, conv.w = problem_.w.in;
    conv.k = part.z[1], conv.r = h.taps, conv.s = w.taps, conv.p = h.out, conv.q = w.out;
    conv.dilation_h = h.dilation, conv.dilation_w = w.dilation;
    conv.pad_top = h.pad_begin, conv.pad_bottom = h.pad_end, conv.pad_left = w.pad_begin, conv.pad_right = w.pad_end;
    conv.groups = problem_.groups;
    conv.storage = conv.x_storage = storage;
    conv.bias = has_bias;
    conv.activation = epilogue_.activation;
    const std::vector<float>& scale = epilogue_.scale;
    part.conv = pose(conv, filters(part), scale.empty() ? scale : of_channels(part, scale.data()));
    return part;
  }

  static void make(const Copy& copy, const float* from, float* to) {
    LoopCursor at(copy.loops);
    for (std::int64_t count = copy.loops.count(); count > 0; --count, at.next())
      to[copy.to + at.to] = from[copy.from + at.from];
  }
  /// `values` [K] repeated for z's channels; null: zeros, or nothing for an unknown bias.
  std::vector<float> of_channels(const Part& part, const float* values) const {
    if (values == nullptr && !knows_bias) return {};
    std::vector<float> all(static_cast<std::size_t>(problem_.k * part.phases));
    if (values != nullptr) make(channel_copy(part), values, all.data());
    return all;
  }
  /// Empty: not constant.
  Tensor filters(const Part& part) const {
    if (!knows_filter) return {};
    Tensor tensor(DType::f32, {part.z[1], problem_.group_c(), part.h.taps, part.w.taps});
    for (const Copy& copy : filter_copies(part)) make(copy, filter_, tensor.values<float>().data());
    return tensor;
  }

  TransposedProblem problem_;
  Epilogue epilogue_;
  const float *filter_ = nullptr, *bias_ = nullptr;  ///< null: not constant, or absent
};

/// Kernel and candidate of one part.
struct PartChoice {
  const Kernel* kernel = nullptr;
  Candidate candidate = {};
};

/// The parts' configurations as one text: "conv=NAME[tile=128x64;split_k=4]" each.
std::string written(const std::vector<PartChoice>& choices) {
  ConfigWriter writer;
  for (const PartChoice& choice : choices) {
    std::string config = choice.candidate.config;
    std::replace(config.begin(), config.end(), ' ', ';');
    writer.add("conv", fmt::format("{}[{}]", choice.kernel->name(), config));
  }
  return writer.str();
}

/// The candidates, as far as Kernel::bind() and blob() need them.
std::vector<PartChoice> read(const Phases& phases, const Candidate& whole, DeviceKind device) {
  std::vector<PartChoice> choices;
  ConfigReader reader(whole.config);
  for (const Part& part : phases.parts) {
    if (!part.conv) continue;
    const std::string_view text = reader.word("conv");
    const std::size_t bracket = text.find('[');
    if (bracket == text.npos || text.back() != ']') reader.refuse("NAME[...] expected");
    PartChoice choice;
    choice.kernel = find_kernel("Conv", device, text.substr(0, bracket));
    if (choice.kernel == nullptr) reader.refuse("no such algorithm");
    choice.candidate.config = text.substr(bracket + 1, text.size() - bracket - 2);
    std::replace(choice.candidate.config.begin(), choice.candidate.config.end(), ';', ' ');
    choice.candidate.inputs.assign(part.conv->inputs().size(), formats::nchw);
    choice.candidate.inputs[ConvOp::input] = whole.inputs[ConvTransposeOp::input];
    choice.candidate.outputs = {whole.inputs[ConvTransposeOp::input]};
    choices.push_back(std::move(choice));
  }
  reader.finish();
  return choices;
}

/// Offsets of a part's constants in the blob.
struct PartBytes {
  std::size_t filter = 0, bias = 0, filter_bytes = 0;  ///< filter_bytes 0: computed filters
};
struct BlobLayout {
  std::vector<PartBytes> parts;
  std::size_t bytes = 0;
  std::string key;
};

BlobLayout layout_of(const Phases& phases, const std::vector<PartChoice>& choices) {
  BlobLayout layout;
  auto choice = choices.begin();
  for (const Part& part : phases.parts) {
    PartBytes bytes{.filter = layout.bytes};
    if (part.conv) {
      if (const auto spec = choice->kernel->blob(*part.conv, choice->candidate)) {
        bytes.filter_bytes = spec->bytes;
        layout.bytes += aligned(spec->bytes);
        layout.key += fmt::format(" {}:", spec->key.size()) + spec->key;
      }
      ++choice;
    }
    bytes.bias = layout.bytes;
    layout.bytes += aligned(part.bias.size() * sizeof(float));
    layout.parts.push_back(bytes);
  }
  return layout;
}

class BoundPhases final : public BoundKernel {
 public:
  BoundPhases(const Phases& phases, const std::vector<PartChoice>& choices, const Binding& binding)
      : format_(binding.format(ConvTransposeOp::input)), whole_(phases.whole()), storage_(phases.storage) {
    const BlobLayout layout = layout_of(phases, choices);
    for (std::size_t i = 0, conv = 0; i < phases.parts.size(); ++i) {
      const Part& part = phases.parts[i];
      Step step{.z = part.z, .blob = layout.parts[i], .has_bias = phases.has_bias, .knows_bias = phases.knows_bias};
      if (!whole_) step.copies = phases.copies(part, format_, binding.output_format());
      if (part.conv) {
        step.x = part.conv->shape(ConvOp::input);
        step.filters = part.conv->shape(ConvOp::filter);
        if (!phases.knows_filter) step.filter_copies = phases.filter_copies(part);
        if (!phases.knows_bias) step.bias_copies = {phases.channel_copy(part)};
        const PartChoice& choice = choices[conv++];
        step.conv = choice.kernel->bind({*part.conv, choice.candidate, binding.device});
        if (!whole_) z_bytes_ = std::max(z_bytes_, bytes_of(part.z, storage_));
        if (!phases.knows_filter) filter_bytes_ = std::max(filter_bytes_, bytes_of(step.filters));
        if (!phases.knows_bias) bias_bytes_ = std::max(bias_bytes_, bytes_of({part.z[1]}));
        workspace_bytes_ = std::max(workspace_bytes_, step.conv->workspace_bytes());
      }
      steps_.push_back(std::move(step));
    }
  }
  std::size_t workspace_bytes() const override { return z_bytes_ + filter_bytes_ + bias_bytes_ + workspace_bytes_; }

  void run(const KernelRun& run) const override {
    if (run.outputs[0].elems() == 0) return;
    auto* const y = run.out<std::byte>();
    for (const Step& step : steps_) {
      if (step.conv != nullptr) {
        std::byte* const z = whole_ ? y : run.workspace.data();
        convolve(run, step, z);
        copy(run, step.copies, storage_, z, y);
      } else {
        const std::byte* const bias =
            step.knows_bias ? known_bias(run, step) : run.in<std::byte>(ConvTransposeOp::bias);
        copy(run, step.copies, storage_, bias, y);
      }
    }
  }

 private:
  struct Step {
    Shape z, x = {}, filters = {};
    PartBytes blob;
    bool has_bias = false, knows_bias = false;
    std::unique_ptr<const BoundKernel> conv = nullptr;
    std::vector<Phases::Copy> copies = {}, filter_copies = {}, bias_copies = {};
  };

  static std::size_t bytes_of(const Shape& shape, DType dtype = DType::f32) {
    return aligned(static_cast<std::size_t>(shape.elems()) * dtype_bytes(dtype));
  }
  static const std::byte* known_bias(const KernelRun& run, const Step& step) { return run.blob + step.blob.bias; }

  void convolve(const KernelRun& run, const Step& step, std::byte* z) const {
    std::byte* const filters = run.workspace.data() + z_bytes_;
    std::byte* const computed_bias = filters + filter_bytes_;
    copy(run, step.filter_copies, DType::f32, run.in<std::byte>(ConvTransposeOp::filter), filters);
    copy(run, step.bias_copies, DType::f32, run.in<std::byte>(ConvTransposeOp::bias), computed_bias);
    const auto view = [](const Shape& shape, const void* data, const Format& format = formats::nchw,
                         DType dtype = DType::f32) { return Tensor::share(dtype, shape, nullptr, data, format); };
    const void* const bias = step.knows_bias ? known_bias(run, step) : computed_bias;
    const std::array<Tensor, 3> inputs{view(step.x, run.inputs[ConvTransposeOp::input].data(), format_, storage_),
                                       step.filter_copies.empty() ? Tensor() : view(step.filters, filters),
                                       step.has_bias ? view({step.z[1]}, bias) : Tensor()};
    std::array<Tensor, 1> outputs{Tensor::view(storage_, step.z, z, format_)};
    step.conv->run(
        {.inputs = inputs,
         .outputs = outputs,
         .workspace = run.workspace.subspan(z_bytes_ + filter_bytes_ + bias_bytes_, step.conv->workspace_bytes()),
         .blob = step.blob.filter_bytes > 0 ? run.blob + step.blob.filter : nullptr,
         .pool = run.pool,
         .cuda = run.cuda});
  }

  static void copy(const KernelRun& run, const std::vector<Phases::Copy>& copies, DType dtype, const std::byte* from,
                   std::byte* to) {
    if (copies.empty()) return;
    const auto size = static_cast<std::int64_t>(dtype_bytes(dtype));
    if constexpr (cuda_built)
      if (run.cuda != nullptr) {
        cuda::CopyBatch batch(*run.cuda, dtype_bytes(dtype));
        for (const Phases::Copy& copy : copies) batch.add(copy.loops, from + size * copy.from, to + size * copy.to);
        return batch.flush();
      }
    for (const Phases::Copy& copy : copies)
      strided_copy(dtype_bytes(dtype), copy.loops, from + size * copy.from, to + size * copy.to, *run.pool);
  }

  Format format_;
  bool whole_;
  DType storage_;
  std::vector<Step> steps_;
  std::size_t z_bytes_ = 0, filter_bytes_ = 0, bias_bytes_ = 0, workspace_bytes_ = 0;
};

/// Bound to one format, so that the choice weighs Conv's costs in each.
class TransposedPhases final : public Kernel {
 public:
  TransposedPhases(DeviceKind device, const Format& format) : device_(device), format_(format) {}
  std::string_view name() const override { return format_ == formats::nhwc ? "phases" : "phases_nchw"; }
  DeviceKind device() const override { return device_; }
  DTypeSet types() const override {
    return device_ == DeviceKind::cpu ? dtypes<Types<float, BFloat16>> : dtypes<Types<float, Float16, BFloat16>>;
  }

  Offer offer(const Problem& node, const Target& target) const override {
    if (const DType dtype = node.inputs()[ConvTransposeOp::input].type.dtype; !types().contains(dtype))
      return Offer::refuse(
          fmt::format("transposed convolution of {}; only {} is supported", to_string(dtype), types().str()));
    if (node.outputs()[0].dtype != node.inputs()[ConvTransposeOp::input].type.dtype)
      return Offer::refuse("its input and output differ in type");
    for (std::size_t i = ConvTransposeOp::filter; i < node.inputs().size(); ++i)
      if (node.inputs()[i].present && node.inputs()[i].type.dtype != DType::f32)
        return Offer::refuse(fmt::format("its filter or bias is {}", to_string(node.inputs()[i].type.dtype)));
    if (node.output_shape().rank() == 5) return Offer::refuse("it is 3-D");
    const Phases phases(node);
    const bool activated = node.op().epilogue()->activation.kind != Activation::Kind::none;
    for (const Part& part : phases.parts) {
      if (!part.conv && phases.storage != DType::f32)
        return Offer::refuse("a float32 bias is the result where no filter reaches");
      if (!part.conv && !phases.knows_bias && activated)
        return Offer::refuse("its bias is computed by the network, and activated where no filter reaches");
    }
    if (node.output_shape().rank() != 4 && format_ != formats::nchw) return Offer::refuse("it is 1-D");
    auto candidate = candidate_of(phases, node, target);
    return candidate ? Offer(std::move(*candidate)) : Offer::refuse("no algorithm takes its convolutions");
  }

  std::optional<BlobSpec> blob(const Problem& node, const Candidate& candidate) const override {
    const Phases phases(node);
    const BlobLayout layout = layout_of(phases, read(phases, candidate, device_));
    // What identifies a part's filters besides the constants.
    if (layout.bytes == 0) return std::nullopt;
    BlobSpec spec{.key = fmt::format("phases {} {}{}", to_string(node.op().attributes()), candidate.config, layout.key),
                  .bytes = layout.bytes,
                  .alignment = alignment};
    for (const Part& part : phases.parts)
      spec.key += fmt::format(" {}.{}.{}.{}", part.h.taps, part.w.taps, part.h.phases.front().phase,
                              part.w.phases.front().phase);
    return spec;
  }

  void prepare(const Problem& node, const Candidate& candidate, std::span<std::byte> blob) const override {
    const Phases phases(node);
    const std::vector<PartChoice> choices = read(phases, candidate, device_);
    const BlobLayout layout = layout_of(phases, choices);
    std::fill(blob.begin(), blob.end(), std::byte{0});
    for (std::size_t i = 0, conv = 0; i < phases.parts.size(); ++i) {
      const Part& part = phases.parts[i];
      const PartBytes& bytes = layout.parts[i];
      if (part.conv) {
        const PartChoice& choice = choices[conv++];
        if (bytes.filter_bytes > 0)
          choice.kernel->prepare(*part.conv, choice.candidate, blob.subspan(bytes.filter, bytes.filter_bytes));
      }
      std::copy(part.bias.begin(), part.bias.end(), reinterpret_cast<float*>(blob.data() + bytes.bias));
    }
  }

  std::unique_ptr<const BoundKernel> bind(const Binding& binding) const override {
    const Phases phases(binding.problem);
    return std::make_unique<BoundPhases>(phases, read(phases, binding.candidate, device_), binding);
  }

 private:
  /// The least estimates of convolutions with that input and output format, without halos.
  std::optional<Candidate> candidate_of(const Phases& phases, const Problem& node, const Target& target) const {
    Candidate whole;
    std::vector<PartChoice> choices;
    double z_bytes = 0;
    for (const Part& part : phases.parts) {
      if (!part.conv) continue;
      PartChoice best;
      for (const Kernel* kernel : kernels_of("Conv", device_))
        for (Candidate& candidate : kernel->offer(*part.conv, target).candidates) {
          const bool in_blob =
              (candidate.reads & input_bit(ConvOp::filter)) == 0 && kernel->blob(*part.conv, candidate);
          const bool fits = candidate.inputs[ConvOp::input] == format_ && candidate.outputs[0] == format_ &&
                            in_blob == phases.knows_filter;
          if (!fits || (best.kernel != nullptr && candidate.estimated_us >= best.candidate.estimated_us)) continue;
          best = {kernel, std::move(candidate)};
        }
      if (best.kernel == nullptr) return std::nullopt;
      whole.estimated_us += best.candidate.estimated_us;
      whole.tolerance = std::max(whole.tolerance, best.candidate.tolerance);
      whole.needs_cublas = whole.needs_cublas || best.candidate.needs_cublas;
      z_bytes += static_cast<double>(part.z.elems()) * static_cast<double>(dtype_bytes(phases.storage));
      choices.push_back(std::move(best));
    }
    if (!phases.whole())
      whole.estimated_us +=
          target.device.launch_us * static_cast<double>(phases.parts.size()) + 2 * z_bytes / target.device.bytes_per_us;
    whole.config = written(choices);
    whole.inputs.assign(node.inputs().size(), formats::nchw);
    whole.inputs[ConvTransposeOp::input] = format_;
    whole.outputs = {format_};
    whole.reads = input_bit(ConvTransposeOp::input);
    whole.pitched_output = format_ == formats::nhwc && !phases.whole();
    whole.workspace_bytes = bind({node, whole, target.device})->workspace_bytes();
    return whole;
  }

  DeviceKind device_;
  Format format_;
};

}  // namespace

const Kernel& conv_transpose_phases() {
  static const TransposedPhases kernel(DeviceKind::cpu, formats::nhwc);
  return kernel;
}
const Kernel& conv_transpose_phases_nchw() {
  static const TransposedPhases kernel(DeviceKind::cpu, formats::nchw);
  return kernel;
}

namespace cuda {
const Kernel& conv_transpose_phases() {
  static const TransposedPhases kernel(DeviceKind::cuda, formats::nhwc);
  return kernel;
}
const Kernel& conv_transpose_phases_nchw() {
  static const TransposedPhases kernel(DeviceKind::cuda, formats::nchw);
  return kernel;
}
}  // namespace cuda

}  // namespace lenslet
