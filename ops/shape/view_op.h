#pragma once
// Operators that give the input's bytes another shape.

#include "ops/movement/moves.h"

namespace lenslet {

class ViewOp : public Op {
 public:
  int alias_input() const override { return 0; }
};

/// A plain copy, where a view must run after all.
inline void run_view(const Op&, const KernelRun& run) { copy_bytes(run, run.inputs[0], run.outputs[0]); }

/// nchw only: in another format the order of elements would change with the shape.
inline constexpr auto view_kernels = on_either({.reads = input_bit(0), .bind = bind_run<run_view>});

}  // namespace lenslet
