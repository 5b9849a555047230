#pragma once
// Padding and cropping: what Pad does, and what puts a halo of zeros around images.

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "ops/core/kernel.h"
#include "ops/movement/pad_axis.h"

namespace lenslet {

/// Runs on either device.
class BoundPadding final : public BoundKernel {
 public:
  static constexpr std::size_t value_input = 2;

  /// Pads input 0, which is stored as the output is but for halos, by `pads`: begins of all axes, then ends; negative:
  /// elements cut off. The constant is in the low bytes of `value`; nothing: `value_input` of each run (on the CPU).
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
  /// What lies inside of the last axis that changes is copied whole; that axis is cut into what is before, kept and
  /// after; the axes around it are walked.
  std::size_t changed_ = 0;
  std::int64_t inner_bytes_ = 0, lines_ = 1;
};

}  // namespace lenslet
