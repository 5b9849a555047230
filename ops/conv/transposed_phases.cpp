// ConvTranspose by convolutions of stride 1, on either device: the elements of the output that see their input through
// the same window (phases.h) are the output channels of one convolution, whose algorithm Conv's own kernels offer; each
// is then copied to where it belongs. Nothing is multiplied by a zero that was not there.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "ops/conv/conv_transpose.h"
#include "ops/conv/phases.h"
#include "ops/core/config_text.h"
#include "ops/core/strided_copy.h"
#include "ops/movement/strided_copy_cuda.h"

namespace lenslet {
namespace {

constexpr std::size_t alignment = 256;
std::size_t aligned(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

/// A pair of groups of phases, of height and of width.
struct Part {
  PhaseGroup h = {}, w = {};
  std::int64_t phases = 1;       ///< of both
  Shape z = {};                  ///< what the convolution makes; of no taps: [1,phases*K,1,1], what y is there
  std::vector<float> bias = {};  ///< [phases*K], those of a group of channels together; of no taps: what y is there
  std::unique_ptr<const Problem> conv = nullptr;  ///< null: no taps
};

/// A ConvTranspose whose filters and bias are known.
class Phases {
 public:
  explicit Phases(const Problem& node)
      : problem_(node.as<ConvTransposeOp>().problem(node.inputs())), epilogue_(*node.op().epilogue()) {
    const auto known = [&](std::size_t i) -> const float* {
      if (i >= node.inputs().size() || node.inputs()[i].constant == nullptr) return nullptr;
      return node.inputs()[i].constant->values<float>().data();
    };
    filter_ = known(ConvTransposeOp::filter);
    bias_ = known(ConvTransposeOp::bias);
    for (const PhaseGroup& h : phase_groups(problem_.h))
      for (const PhaseGroup& w : phase_groups(problem_.w))
        if (!h.runs.empty() && !w.runs.empty()) parts.push_back(part(h, w));
  }

  std::vector<Part> parts;

  /// Does the convolution of the only part make y as it is?
  bool whole() const {
    const auto same = [](const PhaseGroup& group, const TransposedAxis& axis) {
      return axis.stride == 1 && group.runs.front().from == 0 && group.out == axis.out;
    };
    return parts.size() == 1 && parts[0].conv && same(parts[0].h, problem_.h) && same(parts[0].w, problem_.w);
  }

  /// The copies that bring z of a part to y, both in `format`.
  struct Copy {
    StridedLoops loops;
    std::int64_t from = 0, to = 0;
  };
  std::vector<Copy> copies(const Part& part, const Format& format) const {
    const AxisSteps of_y = element_strides({problem_.n, problem_.k, problem_.h.out, problem_.w.out}, format);
    AxisSteps of_z = element_strides(part.z, format);
    if (!part.conv) of_z = {0, 1, 0, 0};
    const std::int64_t group_k = problem_.group_k();
    const std::int64_t of_phase_w = group_k * of_z[1], of_phase_h = of_phase_w * std::int64_t(part.w.phases.size());
    using Loop = StridedLoops::Loop;
    std::vector<Copy> list;
    for (const PhaseGroup::Run& rows : part.h.runs)
      for (const PhaseGroup::Run& columns : part.w.runs) {
        const Loop n{problem_.n, of_z[0], of_y[0]},
            g{problem_.groups, group_k * part.phases * of_z[1], group_k * of_y[1]};
        const Loop k{group_k, of_z[1], of_y[1]};
        const Loop h{rows.count, of_z[2], problem_.h.stride * of_y[2]}, i{rows.phases, of_phase_h, of_y[2]};
        const Loop w{columns.count, of_z[3], problem_.w.stride * of_y[3]}, j{columns.phases, of_phase_w, of_y[3]};
        Copy copy;
        // In the memory order of y.
        for (const Loop& loop :
             format == formats::nhwc ? std::array{n, h, i, w, j, g, k} : std::array{n, g, k, h, i, w, j})
          copy.loops.add(loop.dim, loop.from, loop.to);
        copy.from = rows.from * of_z[2] + rows.phase * of_phase_h + columns.from * of_z[3] + columns.phase * of_phase_w;
        copy.to = rows.to * of_y[2] + columns.to * of_y[3];
        list.push_back(copy);
      }
    return list;
  }

 private:
  Part part(const PhaseGroup& h, const PhaseGroup& w) const {
    Part part{.h = h, .w = w, .phases = static_cast<std::int64_t>(h.phases.size() * w.phases.size())};
    const std::int64_t channels = problem_.k * part.phases;
    std::vector<float> scale;
    for (std::int64_t g = 0; g < problem_.groups; ++g)
      for (std::int64_t phase = 0; phase < part.phases; ++phase)
        for (std::int64_t k = g * problem_.group_k(); k < (g + 1) * problem_.group_k(); ++k) {
          part.bias.push_back(bias_ == nullptr ? 0.0F : bias_[k]);
          if (!epilogue_.scale.empty()) scale.push_back(epilogue_.scale[static_cast<std::size_t>(k)]);
        }
    if (h.taps == 0 || w.taps == 0) {
      part.z = {1, channels, 1, 1};
      for (float& value : part.bias) value = static_cast<float>(apply(epilogue_.activation, double{value}));
      return part;
    }
    part.z = {problem_.n, channels, h.out, w.out};
    ConvProblem conv;
    conv.n = problem_.n, conv.c = problem_.c, conv.h = problem_.h.in, conv.w = problem_.w.in;
    conv.k = channels, conv.r = h.taps, conv.s = w.taps, conv.p = h.out, conv.q = w.out;
    conv.dilation_h = h.dilation, conv.dilation_w = w.dilation;
    conv.pad_top = h.pad_begin, conv.pad_bottom = h.pad_end, conv.pad_left = w.pad_begin, conv.pad_right = w.pad_end;
    conv.groups = problem_.groups;
    conv.bias = bias_ != nullptr;
    conv.activation = epilogue_.activation;
    part.conv = pose(conv, filters(part), std::move(scale));
    return part;
  }

  /// [phases*K][C/groups][taps of h][taps of w], the last taps first.
  Tensor filters(const Part& part) const {
    const std::int64_t group_k = problem_.group_k(), r = part.h.taps, s = part.w.taps;
    Tensor tensor(DType::f32, {problem_.k * part.phases, problem_.group_c(), r, s});
    float* to = tensor.values<float>().data();
    for (std::int64_t g = 0; g < problem_.groups; ++g)
      for (const PhaseGroup::Phase& i : part.h.phases)
        for (const PhaseGroup::Phase& j : part.w.phases)
          for (std::int64_t k = 0; k < group_k; ++k)
            for (std::int64_t c = 0; c < problem_.group_c(); ++c) {
              const float* const from =
                  filter_ + ((g * problem_.group_c() + c) * group_k + k) * problem_.h.taps * problem_.w.taps;
              for (std::int64_t u = r - 1; u >= 0; --u)
                for (std::int64_t v = s - 1; v >= 0; --v)
                  *to++ = from[(i.tap + u * part.h.tap_step) * problem_.w.taps + j.tap + v * part.w.tap_step];
            }
    return tensor;
  }

  TransposedProblem problem_;
  Epilogue epilogue_;
  const float *filter_ = nullptr, *bias_ = nullptr;  ///< null: not known, or there is none
};

/// How a part is computed.
struct PartPlan {
  const Kernel* kernel = nullptr;
  Candidate candidate = {};
};

/// Configurations of the parts, in one text: "conv=NAME[tile=128x64;slices=4]" for each.
std::string written(const std::vector<PartPlan>& plans) {
  ConfigWriter writer;
  for (const PartPlan& plan : plans) {
    std::string config = plan.candidate.config;
    std::replace(config.begin(), config.end(), ' ', ';');
    writer.add("conv", fmt::format("{}[{}]", plan.kernel->name(), config));
  }
  return writer.str();
}

/// Candidates as far as Kernel::bind() and blob() look at them.
std::vector<PartPlan> read(const Phases& phases, const Candidate& whole, DeviceKind device) {
  std::vector<PartPlan> plans;
  ConfigReader reader(whole.config);
  for (const Part& part : phases.parts) {
    if (!part.conv) continue;
    const std::string_view text = reader.word("conv");
    const std::size_t bracket = text.find('[');
    if (bracket == text.npos || text.back() != ']') reader.refuse("NAME[...] expected");
    PartPlan plan;
    plan.kernel = find_kernel("Conv", device, text.substr(0, bracket));
    if (plan.kernel == nullptr) reader.refuse("no such algorithm");
    plan.candidate.config = text.substr(bracket + 1, text.size() - bracket - 2);
    std::replace(plan.candidate.config.begin(), plan.candidate.config.end(), ';', ' ');
    plan.candidate.inputs.assign(part.conv->inputs().size(), formats::nchw);
    plan.candidate.inputs[ConvOp::input] = whole.inputs[ConvTransposeOp::input];
    plan.candidate.outputs = {whole.inputs[ConvTransposeOp::input]};
    plans.push_back(std::move(plan));
  }
  reader.finish();
  return plans;
}

/// Where a part's constants lie in the blob.
struct PartBytes {
  std::size_t filter = 0, bias = 0, filter_bytes = 0;
};
struct BlobLayout {
  std::vector<PartBytes> parts;
  std::size_t bytes = 0;
  std::string key;
};

BlobLayout layout_of(const Phases& phases, const std::vector<PartPlan>& plans) {
  BlobLayout layout;
  auto plan = plans.begin();
  for (const Part& part : phases.parts) {
    PartBytes bytes{.filter = layout.bytes};
    if (part.conv) {
      const BlobSpec spec = plan->kernel->blob(*part.conv, plan->candidate).value();
      ++plan;
      bytes.filter_bytes = spec.bytes;
      layout.bytes += aligned(spec.bytes);
      layout.key += fmt::format(" {}:", spec.key.size()) + spec.key;
    }
    bytes.bias = layout.bytes;
    layout.bytes += aligned(part.bias.size() * sizeof(float));
    layout.parts.push_back(bytes);
  }
  return layout;
}

class BoundPhases final : public BoundKernel {
 public:
  BoundPhases(const Phases& phases, const std::vector<PartPlan>& plans, const Binding& binding)
      : format_(binding.format(ConvTransposeOp::input)), whole_(phases.whole()) {
    const BlobLayout layout = layout_of(phases, plans);
    for (std::size_t i = 0, conv = 0; i < phases.parts.size(); ++i) {
      const Part& part = phases.parts[i];
      Step step{.z = part.z, .blob = layout.parts[i]};
      if (!whole_) step.copies = phases.copies(part, format_);
      if (part.conv) {
        step.x = part.conv->shape(ConvOp::input);
        step.bias = part.conv->inputs()[ConvOp::bias].present;
        const PartPlan& plan = plans[conv++];
        step.conv = plan.kernel->bind({*part.conv, plan.candidate, binding.device});
        if (!whole_) z_bytes_ = std::max(z_bytes_, aligned(static_cast<std::size_t>(part.z.elems()) * sizeof(float)));
        workspace_bytes_ = std::max(workspace_bytes_, step.conv->workspace_bytes());
      }
      steps_.push_back(std::move(step));
    }
  }
  std::size_t workspace_bytes() const override { return z_bytes_ + workspace_bytes_; }

  void run(const KernelRun& run) const override {
    if (run.outputs[0].elems() == 0) return;
    for (const Step& step : steps_) {
      const auto* from = reinterpret_cast<const float*>(run.blob + step.blob.bias);
      if (step.conv != nullptr) {
        const std::array<Tensor, 3> inputs{
            Tensor::share(DType::f32, step.x, nullptr, run.inputs[ConvTransposeOp::input].data(), format_), Tensor(),
            step.bias ? Tensor::share(DType::f32, {step.z[1]}, nullptr, from) : Tensor()};
        void* const z = whole_ ? run.outputs[0].data() : run.workspace.data();
        std::array<Tensor, 1> outputs{Tensor::view(DType::f32, step.z, z, format_)};
        step.conv->run({.inputs = inputs,
                        .outputs = outputs,
                        .workspace = run.workspace.subspan(z_bytes_, step.conv->workspace_bytes()),
                        .blob = run.blob + step.blob.filter,
                        .pool = run.pool,
                        .cuda = run.cuda});
        from = static_cast<const float*>(z);
      }
      copy(run, step, from);
    }
  }

 private:
  struct Step {
    Shape z, x = {};
    PartBytes blob;
    bool bias = false;
    std::unique_ptr<const BoundKernel> conv = nullptr;
    std::vector<Phases::Copy> copies = {};
  };

  static void copy(const KernelRun& run, const Step& step, const float* from) {
    auto* const to = run.out<float>();
    if constexpr (cuda_built)
      if (run.cuda != nullptr) {
        cuda::CopyBatch batch(*run.cuda, sizeof(float));
        for (const Phases::Copy& copy : step.copies) batch.add(copy.loops, from + copy.from, to + copy.to);
        return batch.flush();
      }
    for (const Phases::Copy& copy : step.copies)
      strided_copy(sizeof(float), copy.loops, from + copy.from, to + copy.to, *run.pool);
  }

  Format format_;
  bool whole_;
  std::vector<Step> steps_;
  std::size_t z_bytes_ = 0, workspace_bytes_ = 0;
};

class TransposedPhases final : public Kernel {
 public:
  explicit TransposedPhases(DeviceKind device) : device_(device) {}
  std::string_view name() const override { return "phases"; }
  DeviceKind device() const override { return device_; }
  DTypeSet types() const override { return dtypes<Types<float>>; }

  Offer offer(const Problem& node, const Target& target) const override {
    if (const DType dtype = node.inputs()[ConvTransposeOp::input].type.dtype; !types().contains(dtype))
      return Offer::refuse(
          fmt::format("transposed convolution of {}; only {} is done", to_string(dtype), types().str()));
    if (node.inputs()[ConvTransposeOp::filter].constant == nullptr)
      return Offer::refuse("its filters are computed by the network");
    const std::size_t bias = ConvTransposeOp::bias;
    if (bias < node.inputs().size() && node.inputs()[bias].present && node.inputs()[bias].constant == nullptr)
      return Offer::refuse("its bias is computed by the network");
    const Phases phases(node);
    Offer offer;
    for (const Format& format : {formats::nhwc, formats::nchw})
      if (node.output_shape().rank() == 4 || format == formats::nchw)
        if (auto candidate = candidate_in(format, phases, node, target))
          offer.candidates.push_back(std::move(*candidate));
    return offer.candidates.empty() ? Offer::refuse("no algorithm takes its convolutions") : offer;
  }

  std::optional<BlobSpec> blob(const Problem& node, const Candidate& candidate) const override {
    const Phases phases(node);
    const BlobLayout layout = layout_of(phases, read(phases, candidate, device_));
    // What a part's filters are made of, besides the constants.
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
    const std::vector<PartPlan> plans = read(phases, candidate, device_);
    const BlobLayout layout = layout_of(phases, plans);
    std::fill(blob.begin(), blob.end(), std::byte{0});
    for (std::size_t i = 0, conv = 0; i < phases.parts.size(); ++i) {
      const Part& part = phases.parts[i];
      const PartBytes& bytes = layout.parts[i];
      if (part.conv) {
        const PartPlan& plan = plans[conv++];
        plan.kernel->prepare(*part.conv, plan.candidate, blob.subspan(bytes.filter, bytes.filter_bytes));
      }
      std::copy(part.bias.begin(), part.bias.end(), reinterpret_cast<float*>(blob.data() + bytes.bias));
    }
  }

  std::unique_ptr<const BoundKernel> bind(const Binding& binding) const override {
    const Phases phases(binding.problem);
    return std::make_unique<BoundPhases>(phases, read(phases, binding.candidate, device_), binding);
  }

 private:
  /// The least estimates of convolutions that take and give this format, without halos.
  std::optional<Candidate> candidate_in(const Format& format, const Phases& phases, const Problem& node,
                                        const Target& target) const {
    Candidate whole;
    std::vector<PartPlan> plans;
    double z_bytes = 0;
    for (const Part& part : phases.parts) {
      if (!part.conv) continue;
      PartPlan best;
      for (const Kernel* kernel : kernels_of("Conv", device_))
        for (Candidate& candidate : kernel->offer(*part.conv, target).candidates) {
          const bool fits = candidate.inputs[ConvOp::input] == format && candidate.outputs[0] == format &&
                            (candidate.reads & input_bit(ConvOp::filter)) == 0 && kernel->blob(*part.conv, candidate);
          if (!fits || (best.kernel != nullptr && candidate.estimated_us >= best.candidate.estimated_us)) continue;
          best = {kernel, std::move(candidate)};
        }
      if (best.kernel == nullptr) return std::nullopt;
      whole.estimated_us += best.candidate.estimated_us;
      whole.tolerance = std::max(whole.tolerance, best.candidate.tolerance);
      whole.needs_cublas = whole.needs_cublas || best.candidate.needs_cublas;
      z_bytes += static_cast<double>(part.z.elems()) * sizeof(float);
      plans.push_back(std::move(best));
    }
    if (!phases.whole())
      whole.estimated_us +=
          target.device.launch_us * static_cast<double>(phases.parts.size()) + 2 * z_bytes / target.device.bytes_per_us;
    // Errors are measured by the rms of all parts, of which one may have that much more.
    whole.tolerance *= std::sqrt(static_cast<double>(phases.parts.size()));
    whole.config = written(plans);
    whole.inputs.assign(node.inputs().size(), formats::nchw);
    whole.inputs[ConvTransposeOp::input] = format;
    whole.outputs = {format};
    whole.reads = input_bit(ConvTransposeOp::input);
    whole.workspace_bytes = bind({node, whole, target.device})->workspace_bytes();
    return whole;
  }

  DeviceKind device_;
};

}  // namespace

const Kernel& conv_transpose_phases() {
  static const TransposedPhases kernel(DeviceKind::cpu);
  return kernel;
}

namespace cuda {
const Kernel& conv_transpose_phases() {
  static const TransposedPhases kernel(DeviceKind::cuda);
  return kernel;
}
}  // namespace cuda

}  // namespace lenslet
