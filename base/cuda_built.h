#pragma once

namespace lenslet {

/// True if this build has the CUDA kernels, for `if constexpr`: a discarded branch may name missing launchers. Include
/// it rarely: all other sources are then the same text in both builds, which ccache compiles once.
inline constexpr bool cuda_built = LENSLET_HAVE_CUDA != 0;

}  // namespace lenslet
