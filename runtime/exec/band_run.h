#pragma once
// Steps that are run in bands (Band): ready to run, any number of times.

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "ops/core/rows.h"
#include "runtime/graph/graph.h"

namespace lenslet {

class BandRun {
 public:
  /// `kernels` are those of the nodes, in their order; all offer rows.
  BandRun(const Band& band, std::vector<std::shared_ptr<const BoundKernel>> kernels);

  /// The strips of so many threads.
  std::size_t workspace_bytes(int threads) const { return static_cast<std::size_t>(threads) * worker_bytes_; }
  /// `steps` are the nodes' calls, as for BoundKernel::run. Only the last one's output is written; which thread
  /// computes which rows varies, their bits do not.
  void run(std::span<const KernelRun> steps, std::span<std::byte> workspace, ThreadPool& pool) const;

 private:
  struct Strip;

  void run_piece(std::span<const KernelRun> steps, std::int64_t image, Rows rows, std::span<Strip> strips) const;

  std::vector<std::shared_ptr<const BoundKernel>> kernels_;
  std::vector<const RowKernel*> rows_;
  std::vector<std::size_t> strip_offsets_;  // by node but the last, from a worker's own bytes on
  std::size_t worker_bytes_ = 0;
  std::int64_t band_rows_;
};

}  // namespace lenslet
