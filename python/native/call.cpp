// Runs, as Python asks for them.
#include "python/native/python.h"

lenslet_status lenslet_python_run(const lenslet_call* call) {
  return lenslet_runner_run(call->runner, call->inputs, call->input_count, call->outputs, call->output_count,
                            call->options);
}

lenslet_status lenslet_python_observe(lenslet_runner* runner, lenslet_python_observer observer) {
  const auto with_one_argument = [](void* context, const lenslet_event* event) {
    return reinterpret_cast<lenslet_python_observer>(context)(event);
  };
  return lenslet_runner_set_observer(runner, observer == nullptr ? nullptr : +with_one_argument,
                                     reinterpret_cast<void*>(observer));
}
