#pragma once
// For files that choose and estimate CUDA's kernels in every build, and bind them in builds with CUDA.

#include <cstddef>
#include <memory>

#include "base/cuda_built.h"
#include "ops/core/kernel.h"

namespace lenslet {

/// bind()'s kernel in builds without CUDA: it has the workspace of the one that is missing, and cannot run.
class NotBuilt final : public BoundKernel {
 public:
  explicit NotBuilt(std::size_t workspace_bytes) : workspace_bytes_(workspace_bytes) {}
  std::size_t workspace_bytes() const override { return workspace_bytes_; }
  void run(const KernelRun&) const override {
    throw Error(ErrorKind::internal, "a kernel of CUDA in a build without it");
  }

 private:
  std::size_t workspace_bytes_;
};

inline std::unique_ptr<const BoundKernel> not_built(std::size_t workspace_bytes = 0) {
  return std::make_unique<NotBuilt>(workspace_bytes);
}

}  // namespace lenslet
