#pragma once
// Operators whose output is the input's bytes under another shape.

#include "ops/movement/moves.h"

namespace lenslet {

class ViewOp : public Op {
 public:
  int alias_input() const override { return 0; }
};

/// For who runs one all the same: a plain copy.
inline void run_view(const Op&, const KernelRun& run) { copy_bytes(run, run.inputs[0], run.outputs[0]); }

/// Of format nchw only: another one stores the elements in another order, which a new shape would show.
inline constexpr auto view_kernels = on_either({.reads = input_bit(0), .bind = bind_run<run_view>});

}  // namespace lenslet
