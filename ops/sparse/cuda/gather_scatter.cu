// SparseConv on CUDA by the definition: a block takes one output, finds its input for each tap, and each thread adds up
// one filter's products. The reference for the fast kernels, and used for filters that the network computes. No
// atomics, since no two blocks share an output: results are bit-reproducible.

#include <algorithm>
#include <utility>

#include "base/cuda/launch.h"
#include "ops/core/activation.cuh"
#include "ops/sparse/cuda/device_rulebook.cuh"
#include "ops/sparse/cuda/sparse_conv_cuda.h"

namespace lenslet::cuda {
namespace {

constexpr int threads = gather_scatter_threads, most_taps = 125;
static_assert(most_taps <= threads);

struct ScatterCall {
  DeviceRulebook rulebook;
  DeviceActivation activation;
  const float *x, *w, *bias, *residual, *scale;  ///< w [K,C,taps]; bias, residual and scale [K] may be null
  float* y;
  int* fault;
  int channels, filters;
};

/// The input paired with `output` in a tap's list, or -1.
__device__ inline int input_of(const DevicePairs& pairs, int output, int inputs, int* fault) {
  if (pairs.in == nullptr) return output;
  int begin = 0, end = pairs.count;
  while (begin < end) {
    const int middle = begin + (end - begin) / 2;
    if (pairs.out[middle] < output)
      begin = middle + 1;
    else
      end = middle;
  }
  if (begin == pairs.count || pairs.out[begin] != output) return -1;
  const int in = pairs.in[begin];
  if (in >= 0 && in < inputs) return in;
  report(fault);
  return -1;
}

__global__ void __launch_bounds__(threads) gather_scatter(const __grid_constant__ ScatterCall call) {
  wait_for_previous();
  __shared__ int inputs_of[most_taps];
  const auto counts = call.rulebook.counts();
  const int thread = static_cast<int>(threadIdx.x), taps = call.rulebook.volume;
  if (!counts.valid && blockIdx.x == 0 && thread == 0) report(call.fault);
  for (int output = static_cast<int>(blockIdx.x); output < call.rulebook.most_outputs;
       output += static_cast<int>(gridDim.x)) {
    float* const y = call.y + static_cast<long long>(output) * call.filters;
    if (output >= counts.outputs) {
      for (int k = thread; k < call.filters; k += threads) y[k] = 0;
      continue;
    }
    __syncthreads();  // all threads are done with the inputs of the previous output
    if (thread < taps) {
      const DevicePairs pairs = call.rulebook.pairs(thread, counts.outputs);
      if (!pairs.valid) report(call.fault);
      inputs_of[thread] = input_of(pairs, output, counts.inputs, call.fault);
    }
    __syncthreads();
    for (int k = thread; k < call.filters; k += threads) {
      const float* const filter = call.w + static_cast<long long>(k) * call.channels * taps;
      const float scale = call.scale == nullptr ? 1 : call.scale[k];
      float sum = 0;
      for (int tap = 0; tap < taps; ++tap) {
        const int in = inputs_of[tap];
        if (in < 0) continue;
        const float* const x = call.x + static_cast<long long>(in) * call.channels;
        float product = 0;
        for (int c = 0; c < call.channels; ++c)
          product = fmaf(x[c], filter[static_cast<long long>(c) * taps + tap] * scale, product);
        sum += product;
      }
      if (call.bias != nullptr) sum += call.bias[k];
      if (call.residual != nullptr) sum += call.residual[static_cast<long long>(output) * call.filters + k];
      y[k] = call.activation(sum);
    }
  }
}

class BoundGatherScatter final : public BoundKernel {
 public:
  BoundGatherScatter(SparseConvProblem p, std::int64_t length, int multiprocessors)
      : p_(std::move(p)), length_(length), blocks_(std::min<std::int64_t>(p_.max_outputs, 16LL * multiprocessors)) {}

  void run(const KernelRun& run) const override {
    ScatterCall call{DeviceRulebook(p_, length_),
                     DeviceActivation(p_.activation),
                     run.in<float>(SparseConvOp::input),
                     run.in<float>(SparseConvOp::filter),
                     run.in<float>(SparseConvOp::bias),
                     run.in<float>(SparseConvOp::residual),
                     reinterpret_cast<const float*>(run.blob),
                     run.out<float>(),
                     run.cuda->fault,
                     static_cast<int>(p_.channels),
                     static_cast<int>(p_.filters)};
    call.rulebook.values = run.in<std::int32_t>(SparseConvOp::rulebook);
    launch(*run.cuda, gather_scatter, static_cast<unsigned>(blocks_), threads, 0, call);
  }
  std::string fault() const override { return rulebook_fault(p_); }

 private:
  SparseConvProblem p_;
  std::int64_t length_, blocks_;
};

}  // namespace

std::unique_ptr<const BoundKernel> bind_gather_scatter(SparseConvProblem p, std::int64_t length, int multiprocessors) {
  return std::make_unique<BoundGatherScatter>(std::move(p), length, multiprocessors);
}

}  // namespace lenslet::cuda
