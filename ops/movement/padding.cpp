#include <algorithm>
#include <cstring>

#include "base/cuda_built.h"
#include "ops/core/grain.h"
#include "ops/movement/pad_cuda.h"
#include "ops/movement/padding.h"

namespace lenslet {

BoundPadding::BoundPadding(const Binding& binding, PadMode mode, std::span<const std::int64_t> pads,
                           std::optional<std::uint64_t> value)
    : mode_(mode),
      element_bytes_(dtype_bytes(binding.problem.outputs()[0].dtype)),
      value_(value),
      rank_(static_cast<std::size_t>(binding.shape(0).rank())) {
  const Shape& x = binding.shape(0);
  const auto order = memory_order(x.rank(), binding.output_format());
  for (std::size_t i = 0; i < rank_; ++i) {
    const auto axis = static_cast<std::size_t>(order[i]);
    axes_[i] = PadAxis::of(x[order[i]], pads[axis], pads[axis + rank_]);
  }
  changed_ = std::max<std::size_t>(rank_, 1) - 1;
  inner_bytes_ = static_cast<std::int64_t>(element_bytes_);
  for (; changed_ > 0 && axes_[changed_].unchanged(); --changed_) inner_bytes_ *= axes_[changed_].out;
  for (std::size_t i = 0; i < changed_; ++i) lines_ *= axes_[i].out;
}

void BoundPadding::run(const KernelRun& run) const {
  std::uint64_t value = value_.value_or(0);
  if constexpr (cuda_built)
    if (run.cuda != nullptr)
      return cuda::pad(*run.cuda, element_bytes_, mode_, std::span(axes_).first(rank_), value, run.inputs[0].data(),
                       run.outputs[0].data());
  if (!value_) std::memcpy(&value, run.inputs[value_input].data(), element_bytes_);
  run_cpu(run, value);
}

void BoundPadding::run_cpu(const KernelRun& run, std::uint64_t value) const {
  const auto* from = run.in<std::byte>(0);
  auto* to = run.out<std::byte>();
  const PadAxis& line = axes_[changed_];  // of a scalar: one element, unchanged
  const std::int64_t line_bytes = line.out * inner_bytes_;
  const std::int64_t grain = std::max<std::int64_t>(1, copy_grain_bytes / std::max<std::int64_t>(line_bytes, 1));

  run.pool->parallel_for(lines_, grain, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t l = begin; l < end; ++l) {
      std::byte* out = to + l * line_bytes;
      std::int64_t source = 0, rest = l, step = 1;  // line of x that line l of y comes from
      for (std::size_t i = changed_; i-- > 0;) {
        const std::int64_t index = axes_[i].source(rest % axes_[i].out, mode_);
        source = index < 0 || source < 0 ? -1 : source + index * step;
        rest /= axes_[i].out;
        step *= axes_[i].dim;
      }
      if (source < 0) {
        fill(out, line_bytes, value);
        continue;
      }
      const std::byte* in = from + source * line.dim * inner_bytes_;
      const auto pad_range = [&](std::int64_t first, std::int64_t count) {
        if (mode_ == PadMode::constant) return fill(out + first * inner_bytes_, count * inner_bytes_, value);
        for (std::int64_t o = first; o < first + count; ++o)
          std::memcpy(out + o * inner_bytes_, in + line.source(o, mode_) * inner_bytes_,
                      static_cast<std::size_t>(inner_bytes_));
      };
      pad_range(0, line.before);
      std::memcpy(out + line.before * inner_bytes_, in + line.first * inner_bytes_,
                  static_cast<std::size_t>(line.kept * inner_bytes_));
      pad_range(line.before + line.kept, line.out - line.before - line.kept);
    }
  });
}

void BoundPadding::fill(std::byte* to, std::int64_t bytes, std::uint64_t value) const {
  if (value == 0) {
    std::memset(to, 0, static_cast<std::size_t>(bytes));
    return;
  }
  for (std::int64_t i = 0; i < bytes; i += static_cast<std::int64_t>(element_bytes_))
    std::memcpy(to + i, &value, element_bytes_);
}

}  // namespace lenslet
