#pragma once

namespace lenslet::test {

/// A seed for what the running test case draws, drawn once a case. A case that fails names it, and
/// LENSLET_TEST_SEED=THAT draws the same again.
unsigned random_seed();

}  // namespace lenslet::test
