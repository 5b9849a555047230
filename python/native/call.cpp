// Runs, as Python asks for them.
#include "python/native/python.h"

lenslet_status lenslet_python_run(const lenslet_call* call) {
  return lenslet_runner_run(call->runner, call->inputs, call->input_count, call->outputs, call->output_count,
                            call->options);
}
