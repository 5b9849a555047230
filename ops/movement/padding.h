#pragma once
// Padding and cropping, for Pad and for zero halos around images.

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "ops/core/kernel.h"
#include "ops/movement/pad_axis.h"

namespace lenslet {

/// A bound kernel for either device.
class BoundPadding final : public BoundKernel {
 public:
  static constexpr std::size_t value_input = 2;

  /// Pads input 0, stored like the output except for halos, by `pads`: begins of all axes, then ends; negative:
  /// cropped. The constant is in the low bytes of `value`; without it, each run reads `value_input` (CPU only).
  BoundPadding(const Binding& binding, PadMode mode, std::span<const std::int64_t> pads,
               std::optional<std::uint64_t> value);
  void run(const KernelRun& run) const override;

 private:
  void run_cpu(const KernelRun& run, std::uint64_t value) const;
  void fill(std::byte* to, std::int64_t bytes, std::uint64_t value) const;

  PadMode mode_;
  std::size_t element_bytes_;
  std::optional<std::uint64_t> value_;
  std::size_t rank_;
  std::array<PadAxis, Shape::max_rank> axes_{};  ///< in memory order, outermost first
  /// Everything inside of the last changed axis is copied whole; that axis is split into before, kept and after; the
  /// axes around it are walked.
  std::size_t changed_ = 0;
  std::int64_t inner_bytes_ = 0, lines_ = 1;
};

}  // namespace lenslet
