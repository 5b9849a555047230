#pragma once
// A band of steps (Band), bound and ready to run any number of times.

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "ops/core/row_kernel.h"
#include "runtime/graph/graph.h"

namespace lenslet {

class BandRun {
 public:
  /// `kernels` are those of the nodes, in their order; all offer rows.
  BandRun(const Band& band, std::vector<std::shared_ptr<const BoundKernel>> kernels);

  /// Bytes of the strips of all threads.
  std::size_t workspace_bytes(int threads) const { return static_cast<std::size_t>(threads) * worker_bytes_; }
  /// `steps` are the nodes' calls, as for BoundKernel::run. Writes only the last one's output. Results do not depend on
  /// which thread computes which rows.
  void run(std::span<const KernelRun> steps, std::span<std::byte> workspace, ThreadPool& pool) const;

 private:
  struct Strip;

  template <typename RunRows>
  void run_piece(std::span<const KernelRun> steps, std::int64_t image, Rows rows, std::span<Strip> strips,
                 const RunRows& run_rows) const;

  std::vector<std::shared_ptr<const BoundKernel>> kernels_;
  std::vector<const RowKernel*> rows_;
  std::vector<std::size_t> strip_offsets_;  // by node except the last, relative to a worker's own bytes
  std::size_t worker_bytes_ = 0;
  std::int64_t band_rows_;
};

}  // namespace lenslet
