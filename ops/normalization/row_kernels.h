#pragma once
// The kernels of operators that normalise rows. `Rows`, made from a Binding, describes an operator's rows: count,
// length, epsilon, affine(KernelRun) (normalize_rows.h), and may have an activation, applied last, or
// residual(KernelRun), added last unless null. They are rows of input 0 and of output 0.

#include <algorithm>
#include <cstddef>
#include <utility>

#include <fmt/format.h>

#include "base/cuda_built.h"
#include "ops/core/kernel.h"
#include "ops/normalization/normalize_rows.h"
#include "ops/normalization/pixel_groups.h"

namespace lenslet {

/// Refuses a `stash_type`, the type of the statistics, other than float32.
inline void require_float_statistics(AttributeReader& reader) {
  if (const std::int64_t type = reader.integer("stash_type", 1); type != 1)
    throw Error(ErrorKind::unsupported, fmt::format("attribute 'stash_type' = {} (supported: 1, float32)", type));
}

/// An Affine of the CPU's with an activation behind it.
template <typename Affine>
struct Activated : Affine {
  Activation activation;
  void write(double mean, double deviation, std::int64_t row, const float* x, std::int64_t n, float* y) const {
    Affine::write(mean, deviation, row, x, n, y);
    activate_row(activation, y, n);
  }
};

/// An Affine of the CPU's with a residual [rows, n] behind it.
template <typename Affine>
struct Added : Affine {
  const float* residual;
  void write(double row_mean, double deviation, std::int64_t row, const float* x, std::int64_t n, float* y) const {
    Affine::write(row_mean, deviation, row, x, n, y);
    const float* const from = residual + row * n;
    for (std::int64_t i = 0; i < n; ++i) y[i] += from[i];
  }
};

template <typename Rows>
std::unique_ptr<const BoundKernel> bind_rows(const Binding& binding) {
  return bound([rows = Rows(binding)](const KernelRun& run) {
    const auto normalize = [&](const auto& affine) {
      normalize_rows(affine, rows.epsilon, rows.count, rows.length, run.in<float>(0), run.out<float>(), *run.pool);
    };
    const auto affine = rows.affine(run);
    if constexpr (requires { rows.activation; })
      if (rows.activation.kind != Activation::Kind::none)
        return normalize(Activated<std::remove_const_t<decltype(affine)>>{{affine}, rows.activation});
    if constexpr (requires { rows.residual(run); })
      if (const void* residual = rows.residual(run); residual != nullptr)
        return normalize(Added<std::remove_const_t<decltype(affine)>>{{affine}, static_cast<const float*>(residual)});
    normalize(affine);
  });
}

/// Bytes of inputs 1 and 2 as float32, if they are of 16 bits.
inline std::size_t widened_bytes(const Problem& problem) {
  std::size_t bytes = 0;
  for (const InputInfo& input : problem.inputs().subspan(1, std::min<std::size_t>(2, problem.inputs().size() - 1)))
    if (input.present && input.type.dtype != DType::f32)
      bytes += sizeof(float) * static_cast<std::size_t>(input.type.shape.elems());
  return bytes;
}
/// CUDA: the input as float32; from 16 bits widened into `buffer`, which moves on.
inline const float* as_floats(const KernelRun& run, std::size_t input, float*& buffer) {
  const Tensor& x = run.inputs[input];
  if (x.dtype() == DType::f32) return run.in<float>(input);
  if constexpr (cuda_built) cuda::widen(*run.cuda, x.dtype(), x.data(), buffer, x.elems());
  return std::exchange(buffer, buffer + x.elems());
}

/// Scale and bias, inputs 1 and 2, are float32 or widened into the end of the workspace.
template <typename Rows>
std::unique_ptr<const BoundKernel> bind_rows_cuda(const Binding& binding) {
  if constexpr (cuda_built) {
    using Affine = decltype(std::declval<Rows>().affine(std::declval<KernelRun>()));
    const Rows rows(binding);
    const std::size_t moments = cuda::normalize_rows_workspace_bytes<Affine>(rows.count, rows.length);
    const std::size_t widened = widened_bytes(binding.problem);
    const auto run_on = [=](const KernelRun& run) {
      Affine affine = rows.affine(run);
      auto* buffer = reinterpret_cast<float*>(run.workspace.data() + moments);
      if (affine.scale != nullptr) affine.scale = as_floats(run, 1, buffer);
      if (affine.bias != nullptr) affine.bias = as_floats(run, 2, buffer);
      Activation activation;
      if constexpr (requires { rows.activation; }) activation = rows.activation;
      const void* residual = nullptr;
      if constexpr (requires { rows.residual(run); }) residual = rows.residual(run);
      cuda::normalize_rows(*run.cuda, affine, rows.epsilon, rows.count, rows.length, run.inputs[0].dtype(),
                           run.inputs[0].data(), run.outputs[0].data(), run.workspace.data(), activation, residual);
    };
    return bound(run_on, moments + widened);
  }
  return nullptr;
}

}  // namespace lenslet
