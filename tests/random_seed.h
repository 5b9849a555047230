#pragma once

namespace lenslet::test {

/// A random seed for the running test case, the same throughout the case. A failed case prints it, and
/// LENSLET_TEST_SEED=SEED repeats it.
unsigned random_seed();

}  // namespace lenslet::test
