#pragma once
// Where kernels run, and whether this build has the CUDA ones.

namespace lenslet {

enum class DeviceKind { cpu, cuda };

/// For `if constexpr`: a discarded branch may name CUDA launchers that a build without CUDA does not have.
inline constexpr bool cuda_built = LENSLET_HAVE_CUDA != 0;

}  // namespace lenslet
