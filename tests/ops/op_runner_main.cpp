// lenslet-test-ops tests the CPU kernels.

#include "tests/ops/op_runner.h"

namespace lenslet::test {

const OpRunner& op_runner() { return cpu_op_runner(); }

}  // namespace lenslet::test
