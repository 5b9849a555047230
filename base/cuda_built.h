#pragma once

namespace lenslet {

/// Whether this build has CUDA's kernels, for `if constexpr`: a discarded branch may name launchers that are not there.
/// Few sources include it, so that the others are the same text in both builds, which ccache compiles once.
inline constexpr bool cuda_built = LENSLET_HAVE_CUDA != 0;

}  // namespace lenslet
