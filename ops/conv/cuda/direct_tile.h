#pragma once
// Plain C++.

#include "ops/conv/algorithm.h"

namespace lenslet::cuda {

/// The algorithm direct_tile; direct_tile_padded (ladder/direct_tile_padded.cu) is the same on explicitly padded input.
class DirectTile : public ConvAlgorithm {
 public:
  std::string_view name() const override { return "direct_tile"; }
  DeviceKind device() const final { return DeviceKind::cuda; }

 protected:
  std::optional<std::string> refuse(const ConvProblem& problem, const Target& target) const override;
  Plan plan(const ConvProblem& problem, const Target& target) const override;
  FilterForm filter_form(const ConvProblem& problem, std::string_view config) const final;
  void transform(const ConvProblem& problem, std::string_view config, const ConvFilter& filter,
                 std::span<float> to) const final;
  std::unique_ptr<const BoundKernel> bind_conv(const ConvProblem& problem, std::string_view config,
                                               const DeviceProfile& device) const final;
};

}  // namespace lenslet::cuda
