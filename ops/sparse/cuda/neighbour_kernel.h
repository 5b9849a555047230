#pragma once
// The host's half of neighbour_tiles and neighbour_mma. Plain C++.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "ops/core/kernel.h"
#include "ops/sparse/cuda/neighbour_plan.h"
#include "ops/sparse/sparse_conv.h"

namespace lenslet::cuda {

struct NeighbourLaunch {
  SparseConvProblem problem;
  std::int64_t length;  ///< numbers of the rulebook
  bool known;           ///< the rulebook, and its table if there is one, were on the device before the network ran
  NeighbourPlan plan;
  SparseArithmetic arithmetic;

  bool aligned() const { return plan.aligned(row_bytes(problem, arithmetic)); }
};
/// Null where there is none with that configuration. In the files of their names.
std::unique_ptr<const BoundKernel> bind_neighbour_tiles(const NeighbourLaunch& launch);
std::unique_ptr<const BoundKernel> bind_neighbour_mma(const NeighbourLaunch& launch);

/// What is multiplied with what follows from the node and from what was asked for.
class NeighbourKernel : public Kernel {
 public:
  DeviceKind device() const final { return DeviceKind::cuda; }
  Offer offer(const Problem& node, const Target& target) const final;
  std::optional<BlobSpec> blob(const Problem& node, const Candidate& candidate) const final;
  void prepare(const Problem& node, const Candidate& candidate, std::span<std::byte> blob) const final;
  std::unique_ptr<const BoundKernel> bind(const Binding& binding) const final;

 private:
  /// Why it would be less exact than asked for, or cannot be; or nothing.
  virtual std::optional<std::string> refuse_numerics(const Problem& node, const Target& target) const = 0;
  virtual SparseArithmetic arithmetic_of(const Problem& node) const = 0;
  virtual double tolerance(SparseArithmetic arithmetic, std::int64_t terms) const = 0;
  /// Null where there is none with that configuration.
  virtual std::unique_ptr<const BoundKernel> launch(const NeighbourLaunch& launch) const = 0;
};

}  // namespace lenslet::cuda
