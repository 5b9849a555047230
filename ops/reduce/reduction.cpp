#include "ops/reduce/reduction.h"

#include "ops/core/shape_args.h"
#include "ops/reduce/reduce_cuda.h"

namespace lenslet::reduce {

Shape Axes::output(const Shape& x) const {
  AxisInts dims;
  for (int i = 0; i < x.rank(); ++i) {
    const bool gone = reduced[static_cast<std::size_t>(i)];
    if (!gone || keep_dims) dims.values[static_cast<std::size_t>(dims.size++)] = gone ? 1 : x[i];
  }
  return Shape(dims.span());
}

AxisMap Axes::map(std::size_t inputs, int rank) const {
  AxisMap map = axes_kept(inputs, {});
  std::size_t to = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(rank); ++i) {
    if (!reduced[i]) map.inputs[0].axis[to] = static_cast<std::int8_t>(i);
    if (!reduced[i] || keep_dims) ++to;
  }
  return map;
}

Loops Axes::loops(const Binding& binding) const {
  const Shape& x = binding.shape(0);
  const auto from = element_strides(x, binding.format(0));
  const auto to = element_strides(binding.output_shape(), binding.output_format());
  const auto order = memory_order(x.rank(), binding.format(0));
  const AxisMap followed = map(1, x.rank());
  Loops loops;
  for (int i = 0; i < x.rank(); ++i) {
    const auto axis = static_cast<std::size_t>(order[static_cast<std::size_t>(i)]);
    const std::int64_t dim = x[static_cast<int>(axis)];
    if (reduced[axis])
      loops.reduced.add(dim, from[axis], 0);
    else
      loops.kept.add(dim, from[axis],
                     to[static_cast<std::size_t>(followed.inputs[0].follower(static_cast<int>(axis)))]);
  }
  return loops;
}

std::unique_ptr<const BoundKernel> on_cpu(ReduceKind kind, DType dtype, const Loops& loops) {
  return bound([=](const KernelRun& run) {
    dispatch(dtype, ExtremeTypes(), [&]<typename T>(std::type_identity<T>) {
      const auto run_fold = [&]<typename Fold>(std::type_identity<Fold>, typename Fold::Rule rule) {
        reduce::run<Fold>(loops, rule, run.in<T>(0), run.out<T>(), *run.pool);
      };
      if constexpr (lists<ReduceTypes, T>)
        with_fold<T, double>(kind, run_fold);
      else if (kind == ReduceKind::max)
        run_fold(std::type_identity<ExtremeFold<T, true>>(), NoRule());
      else
        run_fold(std::type_identity<ExtremeFold<T, false>>(), NoRule());
    });
  });
}

std::unique_ptr<const BoundKernel> on_cuda(ReduceKind kind, DType dtype, const Loops& loops) {
  if constexpr (cuda_built)
    return bound(
        [=](const KernelRun& run) {
          cuda::reduce(*run.cuda, kind, dtype, loops, run.inputs[0].data(), run.outputs[0].data(),
                       run.workspace.data());
        },
        cuda::reduce_workspace_bytes(loops));
  return nullptr;
}

}  // namespace lenslet::reduce
