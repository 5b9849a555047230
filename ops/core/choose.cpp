#include "ops/core/choose.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/aligned_format.h"

namespace lenslet {
namespace {

Choice::Row ask(const Kernel& kernel, const Problem& problem, const Target& target, InputMask given) {
  Choice::Row row;
  row.kernel = &kernel;
  Offer offer = kernel.offer(problem, target);
  row.refusal = std::move(offer.refusal);
  double best = std::numeric_limits<double>::infinity();
  for (Candidate& candidate : offer.candidates) {
    const double neighbours = neighbours_us(problem, candidate, target, given);
    if (candidate.estimated_us + neighbours >= best) continue;
    best = candidate.estimated_us + neighbours;
    row.neighbours_us = neighbours;
    row.candidate = std::move(candidate);
  }
  return row;
}

}  // namespace

Format home_format(const TensorType& type, const Target& target) {
  const DeviceProfile& device = target.device;
  const bool copies = device.kind == DeviceKind::cuda && device.capability == 90 && device.clusters;
  const bool reads_by_copies = type.dtype == DType::f16 || type.dtype == DType::bf16 ||
                               (type.dtype == DType::f32 && target.numerics.multiply == Numerics::Multiply::tf32);
  if (!copies || !reads_by_copies || type.shape.rank() != 4) return formats::nhwc;
  const Format aligned = aligned_nhwc(type.shape[1], type.dtype);
  const bool pays = 2 * type.shape[1] > aligned.pixel_pitch && type.shape[2] * type.shape[3] > 1;
  return pays ? aligned : formats::nhwc;
}

double conversion_us(const Format& from, const Format& to, const TensorType& type, const Target& target) {
  if (same_bytes(from, to, type.shape)) return 0;
  const auto op = make_normalised_op("LayoutConvert", {{"from", to_string(from)}, {"to", to_string(to)}}, 1);
  const InputInfo input{.present = true, .type = type};
  const Problem problem(op, {&input, 1});
  const Offer offer = kernels_of("LayoutConvert", target.device.kind).front()->offer(problem, target);
  return offer.candidates.front().estimated_us;
}

double neighbours_us(const Problem& problem, const Candidate& candidate, const Target& target, InputMask given) {
  // On the CPU nchw is cheapest only for tiny layers, whose neighbours are as often nchw; one node alone cannot tell.
  // Counting two conversions would move 32 layers of the shared models and cases away from direct, 31 of them alone in
  // their model (2026-11-21).
  const bool at_home = target.device.kind == DeviceKind::cuda;
  double us = 0;
  const auto convert = [&](const Format& format, const TensorType& type, bool is_given) {
    if (type.shape.rank() != 4) return;
    // Charging a conversion of nhwc network inputs cost stem 3 us and spared wgmma_halo one: VGG-16's first layer
    // (batch 1, TF32) then took 10.3 us instead of stem's 7.7.
    const Format home = at_home && is_given ? formats::nchw : home_format(type, target);
    if (format == home) return;
    Format plain = format;  // a halo is a step of its own
    plain.halo = {};
    if (at_home) us += conversion_us(home, plain, type, target);
    us += conversion_us(plain, format, type, target);
  };
  for (std::size_t i = 0; i < problem.inputs().size(); ++i)
    if (const InputInfo& input = problem.inputs()[i]; input.present && input.constant == nullptr)
      convert(candidate.inputs[i], input.type, (given & input_bit(i)) != 0);
  for (std::size_t i = 0; i < problem.outputs().size(); ++i) convert(candidate.outputs[i], problem.outputs()[i], false);
  return us;
}

Choice choose_kernel(const Problem& problem, const Target& target, std::string_view what, std::string_view forced,
                     bool forced_where_accepted, InputMask given) {
  return choose_among(kernels_of(problem.op().type(), target.device.kind), problem, target, what, forced,
                      forced_where_accepted, given);
}

Choice choose_among(std::span<const Kernel* const> kernels, const Problem& problem, const Target& target,
                    std::string_view what, std::string_view forced, bool forced_where_accepted, InputMask given) {
  Choice choice;
  for (const Kernel* kernel : kernels) choice.rows.push_back(ask(*kernel, problem, target, given));

  const Choice::Row* best = nullptr;
  const Choice::Row* next = nullptr;
  const Choice::Row* named = nullptr;
  for (const Choice::Row& row : choice.rows) {
    if (row.kernel->name() == forced) named = &row;
    if (!row.refusal.empty()) continue;
    if (best == nullptr || row.total_us() < best->total_us())
      next = std::exchange(best, &row);
    else if (next == nullptr || row.total_us() < next->total_us())
      next = &row;
  }
  const auto take = [&](const Choice::Row& row) {
    choice.kernel = row.kernel;
    choice.candidate = row.candidate;
  };
  if (named != nullptr && named->refusal.empty()) {
    take(*named);
    choice.reason = "forced";
    return choice;
  }
  if (named != nullptr && !forced_where_accepted)
    throw Error(ErrorKind::unsupported, fmt::format("{} refuses {}: {}", forced, what, named->refusal));
  if (best == nullptr) {
    // A single kernel's own refusal is the best message.
    if (choice.rows.empty()) throw Error(ErrorKind::unsupported, "there is no kernel for it");
    if (choice.rows.size() == 1) throw Error(ErrorKind::unsupported, choice.rows[0].refusal);
    throw Error(ErrorKind::unsupported, fmt::format("no kernel takes {}", what));
  }
  take(*best);
  choice.reason = fmt::format("least estimate: {:.0f} us", best->total_us());
  if (next != nullptr) choice.reason += fmt::format(", then {} {:.0f} us", next->kernel->name(), next->total_us());
  if (named != nullptr) choice.reason += fmt::format(" ({} refuses: {})", forced, named->refusal);
  return choice;
}

}  // namespace lenslet
