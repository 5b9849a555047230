#pragma once
// The interface of a convolution algorithm. Adding one: a file in ops/conv/cpu or ops/conv/cuda and a row in
// choose.cpp.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/thread_pool.h"
#include "ops/conv/problem.h"

namespace lenslet {

namespace cuda {
struct Context;  // base/cuda/context.h
}

/// The filters as loaded, [K][C/groups][R][S] row-major, not owned. `scale` (may be null) holds K factors, one a
/// filter: the effective weight is w * scale[k] (a folded BatchNormalization), applied in double during preparation.
struct ConvFilter {
  const float* w = nullptr;
  const float* scale = nullptr;
};

/// What prepare() makes of the filters; the algorithm knows its own kind. For CUDA algorithms it holds memory of the
/// device that was current.
struct PreparedFilter {
  virtual ~PreparedFilter() = default;
  virtual std::size_t bytes() const = 0;
};

/// One call. Pointers are 64-byte aligned arena memory (CUDA: 256-byte aligned, on the device) except as noted; x,
/// residual and y are in the algorithm's layout.
struct ConvRun {
  const ConvProblem& problem;  ///< with wants_padded(): the problem after with_explicit_padding()
  const float* x = nullptr;
  const PreparedFilter* filter = nullptr;
  const float* bias = nullptr;      ///< [K]; null when !problem.bias
  const float* residual = nullptr;  ///< like y; null when !problem.residual; may be y itself (in place)
  float* y = nullptr;
  std::span<std::byte> workspace = {};  ///< workspace_bytes(problem, pool.threads())
  ThreadPool* pool = nullptr;           ///< CPU algorithms
  const cuda::Context* cuda = nullptr;  ///< CUDA algorithms: queue the work on its stream and return
};

/// What the cost model knows of the machine. On CUDA `threads` counts multiprocessors, l2_bytes is the whole L2, and
/// launch_us is what a kernel costs that has nothing to do.
struct MachineRates {
  double flops_per_us = 50e3;   ///< fp32 multiply + add, all planned threads together
  double bytes_per_us = 10e3;   ///< streaming from memory, all planned threads together
  double l2_bytes = 512 << 10;  ///< per core
  int threads = 1;
  double launch_us = 0;
};

/// Stateless; one static instance each.
class ConvAlgorithm {
 public:
  virtual ~ConvAlgorithm() = default;
  virtual std::string_view name() const = 0;
  /// Why this problem cannot be done, or nothing. Gets the problem with implicit pads, always.
  virtual std::optional<std::string> refuse(const ConvProblem& problem) const = 0;
  /// Of x, residual and y.
  virtual Format format() const = 0;
  /// True: a Pad step runs before, and the problem has no pads left when workspace_bytes/prepare/run see it.
  virtual bool wants_padded() const { return false; }
  /// Stated bound on max |y - exact| / rms(exact) for random data of one scale.
  virtual double tolerance(const ConvProblem& problem) const = 0;
  virtual double estimate_us(const ConvProblem& problem, const MachineRates& rates) const = 0;
  virtual std::size_t workspace_bytes(const ConvProblem& problem, int threads) const = 0;  ///< CUDA: threads is 1
  virtual std::unique_ptr<PreparedFilter> prepare(const ConvProblem& problem, const ConvFilter& filter) const = 0;
  virtual void run(const ConvRun& run) const = 0;
};

}  // namespace lenslet
