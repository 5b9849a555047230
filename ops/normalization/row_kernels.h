#pragma once
// The kernels of operators that normalise rows. `Rows`, made from a Binding, describes an operator's rows: count,
// length, epsilon, affine(KernelRun) (normalize_rows.h). They are rows of input 0 and of output 0.

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

template <typename Rows>
std::unique_ptr<const BoundKernel> bind_rows_cuda(const Binding& binding) {
  if constexpr (cuda_built) {
    using Affine = decltype(std::declval<Rows>().affine(std::declval<KernelRun>()));
    const Rows rows(binding);
    const auto run_on = [rows](const KernelRun& run) {
      cuda::normalize_rows(*run.cuda, rows.affine(run), rows.epsilon, rows.count, rows.length, run.in<float>(0),
                           run.out<float>(), run.workspace.data());
    };
    return bound(run_on, cuda::normalize_rows_workspace_bytes<Affine>(rows.count, rows.length));
  }
  return nullptr;
}

}  // namespace lenslet
