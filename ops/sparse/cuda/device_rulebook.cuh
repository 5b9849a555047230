#pragma once
// A rulebook as device kernels read it. Its content is not trusted: counts and offsets are clamped to the capacity, and
// lists are only read within their bounds.

#include <cuda_runtime.h>

#include "base/cuda/context.h"
#include "ops/core/kernel.h"
#include "ops/sparse/sparse_conv.h"

namespace lenslet::cuda {

/// The pairs of one tap. `count` is 0 if the rulebook's offsets are invalid.
struct DevicePairs {
  const int *in, *out;  ///< null: each site with itself
  int count;
  bool valid;
};

/// What is known of a rulebook before the run, and its address. Passed to kernels by value.
struct DeviceRulebook {
  const int* values = nullptr;
  int capacity;                   ///< capacity of either list
  int volume;                     ///< taps
  int most_inputs, most_outputs;  ///< rows of x and of y
  bool submanifold, inverse;

  DeviceRulebook(const SparseConvProblem& p, std::int64_t length)
      : capacity(static_cast<int>((length - rulebook_header(p.submanifold ? p.taps / 2 : p.taps)) / 2)),
        volume(static_cast<int>(p.taps)),
        most_inputs(static_cast<int>(p.max_inputs)),
        most_outputs(static_cast<int>(p.max_outputs)),
        submanifold(p.submanifold),
        inverse(p.inverse) {}

#if defined(__CUDACC__)
  __device__ int stored() const { return submanifold ? volume / 2 : volume; }

  struct Counts {
    int inputs, outputs;  ///< both 0 unless `valid`
    bool valid;
  };
  __device__ Counts counts() const { return counts(values); }
  /// `header`: the first 3 + stored() values, or a copy.
  __device__ Counts counts(const int* header) const {
    const int inputs = header[inverse ? 1 : 0], outputs = header[inverse ? 0 : 1];
    const bool valid = inputs >= 0 && inputs <= most_inputs && outputs >= 0 && outputs <= most_outputs &&
                       (!submanifold || inputs == outputs);
    return {valid ? inputs : 0, valid ? outputs : 0, valid};
  }

  __device__ bool is_centre(int tap) const { return submanifold && tap == volume / 2; }

  /// `outputs`: as from counts().
  __device__ DevicePairs pairs(int tap, int outputs) const { return pairs(values, tap, outputs); }
  __device__ DevicePairs pairs(const int* header, int tap, int outputs) const {
    if (is_centre(tap)) return {nullptr, nullptr, outputs, true};
    const bool mirrored = submanifold && tap > volume / 2;
    const int list = mirrored ? volume - 1 - tap : tap;
    const int begin = header[2 + list], end = header[3 + list];
    const bool valid = begin >= 0 && begin <= end && end <= capacity && (list > 0 || begin == 0);
    const int* const first = values + 3 + stored() + (valid ? begin : 0);
    const bool swapped = mirrored != inverse;
    return {swapped ? first + capacity : first, swapped ? first : first + capacity, valid ? end - begin : 0, valid};
  }
#endif
};

#if defined(__CUDACC__)
/// Sets Context::fault.
__device__ inline void report(int* fault) {
  if (fault != nullptr) *fault = 1;
}
#endif

/// Fills a SparseConv kernel's arguments with the addresses of a run.
template <typename Call>
void set_addresses(Call& call, const KernelRun& run) {
  call.rulebook.values = run.in<std::int32_t>(SparseConvOp::rulebook);
  call.x = run.in<void>(SparseConvOp::input);
  call.residual = run.in<void>(SparseConvOp::residual);
  call.bias = run.in<float>(SparseConvOp::bias);
  call.y = run.out<void>();
  call.w = reinterpret_cast<const char*>(run.blob);
  call.fault = run.cuda->fault;
}

}  // namespace lenslet::cuda
