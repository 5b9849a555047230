#pragma once
// Convolutions that are one kernel launch.

#include "base/cuda/launch.h"
#include "ops/conv/algorithm.h"
#include "ops/conv/conv.h"
#include "ops/conv/cuda/device_problem.h"
#include "ops/core/activation.cuh"

namespace lenslet::cuda {

/// Kernel argument, passed by value and extended by derived structs: x, residual and y in the algorithm's format, w as
/// transform() packs it.
template <typename Index = int>
struct ConvCall : DeviceProblem<Index> {
  DeviceActivation activation;  ///< after an odd number of ints: its two floats are one 8-byte load
  const float *x = nullptr, *w = nullptr, *bias = nullptr, *residual = nullptr;  ///< bias and residual may be null
  float* y = nullptr;
  int y_pixel = 0;  ///< nhwc: floats from one pixel of y to the next; K with a residual

  explicit ConvCall(const ConvProblem& problem) : DeviceProblem<Index>(problem), activation(problem.activation) {}

  void point_at(const ConvRun& run) {
    x = run.x<float>();
    w = run.filter<float>();
    bias = run.bias<float>();
    residual = run.residual<float>();
    y = run.y<float>();
    y_pixel = static_cast<int>(run.y_pixel);
  }
};

/// ConvCall without an element type, which the kernel knows.
struct UntypedConvCall : DeviceProblem<> {
  DeviceActivation activation;
  const void *x = nullptr, *w = nullptr, *residual = nullptr;
  const float* bias = nullptr;
  void* y = nullptr;
  int y_pixel = 0;  ///< elements from one pixel of y to the next; K with a residual

  explicit UntypedConvCall(const ConvProblem& problem) : DeviceProblem(problem), activation(problem.activation) {}

  void point_at(const ConvRun& run) {
    x = run.x<void>();
    w = run.filter<void>();
    residual = run.residual<void>();
    bias = run.bias<float>();
    y = run.y<void>();
    y_pixel = static_cast<int>(run.y_pixel);
  }
};

/// `call` lacks only the pointers.
template <typename Call>
class OneLaunch final : public BoundConv {
 public:
  OneLaunch(const ConvProblem& p, const Call& call, void (*kernel)(Call), dim3 grid, unsigned threads,
            std::size_t shared_bytes = 0)
      : BoundConv(p), call_(call), kernel_(kernel), grid_(grid), threads_(threads), shared_bytes_(shared_bytes) {}

 private:
  void compute(const ConvRun& run) const override {
    Call call = call_;
    call.point_at(run);
    allow_shared_bytes(kernel_, shared_bytes_);
    launch(*run.cuda, kernel_, grid_, threads_, shared_bytes_, call);
  }

  Call call_;
  void (*kernel_)(Call);
  dim3 grid_;
  unsigned threads_;
  std::size_t shared_bytes_;
};

}  // namespace lenslet::cuda
