#pragma once
// The kernels of operators that normalise rows. `Rows`, made from a Binding, describes an operator's rows: count,
// length, epsilon, affine(KernelRun) (normalize_rows.h). They are rows of input 0 and of output 0.

#include <cstddef>
#include <utility>

#include <fmt/format.h>

#include "base/cuda_built.h"
#include "ops/core/kernel.h"
#include "ops/normalization/normalize_rows.h"

namespace lenslet {

/// Refuses a `stash_type`, the type of the statistics, other than float32.
inline void require_float_statistics(AttributeReader& reader) {
  if (const std::int64_t type = reader.integer("stash_type", 1); type != 1)
    throw Error(ErrorKind::unsupported, fmt::format("attribute 'stash_type' = {} (supported: 1, float32)", type));
}

template <typename Rows>
std::unique_ptr<const BoundKernel> bind_rows(const Binding& binding) {
  return bound([rows = Rows(binding)](const KernelRun& run) {
    normalize_rows(rows.affine(run), rows.epsilon, rows.count, rows.length, run.in<float>(0), run.out<float>(),
                   *run.pool);
  });
}

/// Scale and bias, inputs 1 and 2, are float32 or widened into the end of the workspace.
template <typename Rows>
std::unique_ptr<const BoundKernel> bind_rows_cuda(const Binding& binding) {
  if constexpr (cuda_built) {
    using Affine = decltype(std::declval<Rows>().affine(std::declval<KernelRun>()));
    const Rows rows(binding);
    const std::size_t moments = cuda::normalize_rows_workspace_bytes<Affine>(rows.count, rows.length);
    std::size_t widened = 0;
    for (const InputInfo& input : binding.problem.inputs().subspan(1))
      if (input.present && input.type.dtype != DType::f32)
        widened += sizeof(float) * static_cast<std::size_t>(input.type.shape.elems());
    const auto run_on = [=](const KernelRun& run) {
      Affine affine = rows.affine(run);
      auto* buffer = reinterpret_cast<float*>(run.workspace.data() + moments);
      const auto widen = [&](std::size_t input, const float*& parameter) {
        if (parameter == nullptr) return;
        const Tensor& halves = run.inputs[input];
        cuda::widen(*run.cuda, halves.dtype(), halves.data(), buffer, halves.elems());
        parameter = buffer;
        buffer += halves.elems();
      };
      if (widened > 0) {
        widen(1, affine.scale);
        widen(2, affine.bias);
      }
      cuda::normalize_rows(*run.cuda, affine, rows.epsilon, rows.count, rows.length, run.inputs[0].dtype(),
                           run.inputs[0].data(), run.outputs[0].data(), run.workspace.data());
    };
    return bound(run_on, moments + widened);
  }
  return nullptr;
}

}  // namespace lenslet
