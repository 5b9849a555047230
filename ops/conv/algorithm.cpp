#include "ops/conv/algorithm.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/aligned_format.h"
#include "ops/conv/conv.h"
#include "ops/core/checks.h"
#include "ops/core/choose.h"
#include "ops/core/read_operands.h"

namespace lenslet {
namespace {

const Format::Halo no_halo;

Format::Halo pads_of(const ConvProblem& p) { return {p.pad_top, p.pad_left, p.pad_bottom, p.pad_right}; }

/// The problem that a candidate's kernel gets: its pads may already be in x.
ConvProblem seen_problem(const Problem& node, const Candidate& candidate) {
  const ConvProblem p = conv_problem(node);
  return candidate.inputs[ConvOp::input].halo == no_halo ? p : p.with_explicit_padding();
}

constexpr std::size_t alignment = 256;

std::int64_t filter_gemm_k(const ConvProblem& p) { return p.group_c() * p.r * p.s; }

}  // namespace

/// Packs filters that the network computes, then runs the algorithm. Workspace: the algorithm's, packed filters,
/// scratch.
class BoundPacking final : public BoundKernel {
 public:
  BoundPacking(const ConvAlgorithm& algorithm, const ConvProblem& problem, std::string_view config,
               const DeviceProfile& device)
      : algorithm_(algorithm),
        problem_(problem),
        inner_(algorithm.bind_conv(problem, config, device)),
        filters_at_((inner_->workspace_bytes() + alignment - 1) / alignment * alignment),
        filter_bytes_(algorithm.filter_form(problem, config).bytes()),
        scratch_bytes_(algorithm.packing_bytes(problem, device.units)) {}

  std::size_t workspace_bytes() const override { return filters_at_ + filter_bytes_ + scratch_bytes_; }
  void run(const KernelRun& run) const override {
    std::byte* const filters = run.workspace.data() + filters_at_;
    ConvRun filter;
    filter.filter_data = run.in<void>(ConvOp::filter);
    filter.pool = run.pool;
    filter.cuda = run.cuda;
    algorithm_.pack(problem_, filter, {filters, filter_bytes_}, filters + filter_bytes_);
    KernelRun packed = run;
    packed.workspace = run.workspace.first(inner_->workspace_bytes());
    packed.blob = filters;
    packed.blob_made_now = true;
    inner_->run(packed);
  }

 private:
  const ConvAlgorithm& algorithm_;
  const ConvProblem problem_;
  const std::unique_ptr<const BoundKernel> inner_;
  const std::size_t filters_at_, filter_bytes_, scratch_bytes_;
};

ConvRun BoundConv::conv_run(const KernelRun& run) const {
  ConvRun of;
  read_operands<ConvOp>(run, problem, problem.k, of);
  of.filter_made_now = run.blob_made_now;
  of.y_pixel = y_pixel(problem.k, run);
  of.workspace = run.workspace;
  of.pool = run.pool;
  of.cuda = run.cuda;
  return of;
}

void BoundConv::run(const KernelRun& run) const { compute(conv_run(run)); }

Rows BoundRowConv::reads(Rows rows) const {
  const ConvProblem& p = problem;
  if (rows.count() <= 0) return {};
  const std::int64_t begin = rows.begin * p.stride_h - p.pad_top;
  const std::int64_t last = (rows.end - 1) * p.stride_h - p.pad_top + (p.r - 1) * p.dilation_h;
  return {std::clamp<std::int64_t>(begin, 0, p.h), std::clamp<std::int64_t>(last + 1, 0, p.h)};
}

Offer ConvAlgorithm::offer(const Problem& node, const Target& target) const {
  const DType dtype = node.outputs()[0].dtype, of_x = node.inputs()[ConvOp::input].type.dtype;
  if (!types().contains(dtype))
    return Offer::refuse(fmt::format("convolution of {}; only {} is supported", to_string(dtype), types().str()));
  const bool requantized = node.op().epilogue()->requantize.has_value();
  if (of_x != dtype && !(of_x == DType::f32 && reads_float32()) && !(requantized && types().contains(of_x)))
    return Offer::refuse(fmt::format("its input is {}, its output {}", to_string(of_x), to_string(dtype)));
  for (const std::size_t i : {ConvOp::filter, ConvOp::bias})
    if (const DType wanted = i == ConvOp::filter ? filter_type() : accumulator_type();
        present(node.inputs(), i) && node.inputs()[i].type.dtype != wanted)
      return Offer::refuse(fmt::format("its {} is {}; {}", i == ConvOp::filter ? "filter" : "bias",
                                       to_string(node.inputs()[i].type.dtype),
                                       wanted == DType::f32  // widen made both float32
                                           ? "kernels round float32"
                                           : fmt::format("only {} is supported", to_string(wanted))));
  if (present(node.inputs(), ConvOp::residual) && node.inputs()[ConvOp::residual].type.dtype != dtype)
    return Offer::refuse("its residual is of another type than its output");
  if (node.shape(ConvOp::input).rank() == 5) return Offer::refuse("it is 3-D");
  const bool computed = node.inputs()[ConvOp::filter].constant == nullptr;
  if (computed && computed_filters() == ComputedFilters::refused)
    return Offer::refuse("its filters are computed by the network");
  if (!takes_anything() && node.shape(ConvOp::input).rank() != 4) return Offer::refuse("it is 1-D");
  if (computed && !node.op().epilogue()->scale.empty())
    return Offer::refuse("its filters are computed by the network and scaled");
  if (computed && requantized) return Offer::refuse("its filters are computed by the network, its output requantized");
  const ConvProblem p = conv_problem(node);
  if (p.n == 0 && !takes_anything()) return Offer::refuse("it has no images");
  if (p.max_pool && !pools(p)) return Offer::refuse("it stores what it computes, not its maxima");
  if (auto why = refuse(p, target)) return Offer::refuse(std::move(*why));
  if (auto why = computed ? std::nullopt : refuse_known(p)) return Offer::refuse(std::move(*why));
  return complete(node, p, candidate(p, target), target);
}

std::vector<Candidate> ConvAlgorithm::all_candidates(const Problem& node, const Target& target) const {
  std::vector<Candidate> all = offer(node, target).candidates;
  if (all.empty()) return all;
  const ConvProblem p = conv_problem(node);
  for (const ConvCandidate& one : candidates(p, target))
    if (one.config != all.front().config) all.push_back(complete(node, p, one, target));
  return all;
}

Candidate ConvAlgorithm::complete(const Problem& node, const ConvProblem& p, const ConvCandidate& of,
                                  const Target& target) const {
  const bool computed = node.inputs()[ConvOp::filter].constant == nullptr;
  Candidate candidate;
  const bool images = node.shape(ConvOp::input).rank() == 4;
  const Format format = images ? of.format : formats::nchw;
  candidate.inputs.assign(node.inputs().size(), formats::nchw);
  candidate.inputs[ConvOp::input] = images ? of.x_format.value_or(format) : format;
  if (of.explicit_padding) candidate.inputs[ConvOp::input].halo = pads_of(p);
  if (p.residual && node.inputs()[ConvOp::residual].constant == nullptr) candidate.inputs[ConvOp::residual] = format;
  candidate.outputs = {format};
  candidate.config = of.config;
  candidate.estimated_us = of.estimated_us;
  if (computed && computed_filters() == ComputedFilters::packed)  // filters are read once more, and written
    candidate.estimated_us +=
        target.device.launch_us + 8 * static_cast<double>(p.k * filter_gemm_k(p)) / target.device.bytes_per_us;
  // The CPU rule counts no conversions, but computed filters mostly stand between Reshapes, in nchw.
  if (computed && device() == DeviceKind::cpu && images)
    for (const TensorType& type : {node.inputs()[ConvOp::input].type, node.outputs()[0]})
      candidate.estimated_us += conversion_us(formats::nchw, format, type, target);
  candidate.tolerance = of.tolerance;
  candidate.in_place = input_bit(ConvOp::residual);
  candidate.pitched_output = of.pitched && may_have_pitch(format) && !p.residual;
  if (!computed) candidate.reads = all_inputs & ~input_bit(ConvOp::filter);
  candidate.needs_cublas = of.needs_cublas;
  candidate.waits_for_weights = of.waits_for_weights;
  candidate.workspace_bytes = bind({node, candidate, target.device})->workspace_bytes();
  return candidate;
}

ConvAlgorithm::FilterForm ConvAlgorithm::filter_form(const ConvProblem& p, std::string_view) const {
  return {.elements = p.k * p.group_c() * p.r * p.s};
}

void ConvAlgorithm::transform(const ConvProblem& p, std::string_view, const ConvFilter& filter,
                              std::span<std::byte> bytes) const {
  const std::span<float> to = as_floats(bytes);
  for (std::int64_t k = 0; k < p.k; ++k)
    for (std::int64_t i = 0; i < filter.gemm_k; ++i)
      to[static_cast<std::size_t>(k * filter.gemm_k + i)] = filter.weight(k, i);
}

std::size_t ConvAlgorithm::packing_bytes(const ConvProblem&, int) const { return 0; }

void ConvAlgorithm::pack(const ConvProblem& p, const ConvRun& run, std::span<std::byte> to, std::byte*) const {
  transform(p, {}, {.w = run.filter<void>(), .gemm_k = filter_gemm_k(p), .type = p.filter_type}, to);
}

std::optional<BlobSpec> ConvAlgorithm::blob(const Problem& node, const Candidate& candidate) const {
  if (node.inputs()[ConvOp::filter].constant == nullptr) return std::nullopt;
  const ConvProblem p = seen_problem(node, candidate);
  const FilterForm form = filter_form(p, candidate.config);
  BlobSpec spec;
  spec.bytes = form.bytes();
  // Scales and multipliers are no inputs, so the key has them; the filters' shape comes with the constant.
  spec.key = fmt::format("{} g{} {}", name(), p.groups, form.form);
  const auto append = [&](const std::vector<float>& list) {
    spec.key.append(reinterpret_cast<const char*>(list.data()), list.size() * sizeof(float));
  };
  append(node.op().epilogue()->scale);
  if (!p.requantized) return spec;
  spec.bytes += multiplier_bytes(p.k);
  spec.key += fmt::format(" requantized from {} ", p.x_zero_point);
  append(node.op().epilogue()->requantize->multipliers);
  return spec;
}

void ConvAlgorithm::prepare(const Problem& node, const Candidate& candidate, std::span<std::byte> blob) const {
  const std::vector<float>& scale = node.op().epilogue()->scale;
  const ConvProblem p = seen_problem(node, candidate);
  const ConvFilter filter{.w = node.inputs()[ConvOp::filter].constant->data(),
                          .scale = scale.empty() ? nullptr : scale.data(),
                          .gemm_k = filter_gemm_k(p),
                          .type = p.filter_type};
  if (p.requantized) {
    const std::span<const float> multipliers = node.op().epilogue()->requantize->multipliers;
    std::memset(blob.data(), 0, multiplier_bytes(p.k));
    std::ranges::copy(multipliers, reinterpret_cast<float*>(blob.data()));
    blob = blob.subspan(multiplier_bytes(p.k));
  }
  transform(p, candidate.config, filter, blob);
}

std::unique_ptr<const BoundKernel> ConvAlgorithm::bind(const Binding& binding) const {
  const ConvProblem p = seen_problem(binding.problem, binding.candidate);
  const bool computed = binding.problem.inputs()[ConvOp::filter].constant == nullptr;
  if (computed && computed_filters() == ComputedFilters::packed)
    return std::make_unique<BoundPacking>(*this, p, binding.candidate.config, binding.device);
  return bind_conv(p, binding.candidate.config, binding.device);
}

}  // namespace lenslet
