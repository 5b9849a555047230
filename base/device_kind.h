#pragma once
// Where kernels run, and whether this build has the CUDA ones.

#include <cstddef>
#include <string_view>

namespace lenslet {

enum class DeviceKind { cpu, cuda };
inline constexpr std::size_t device_kinds = 2;
constexpr std::string_view to_string(DeviceKind kind) { return kind == DeviceKind::cpu ? "cpu" : "cuda"; }

/// For `if constexpr`: a discarded branch may name CUDA launchers that a build without CUDA does not have.
inline constexpr bool cuda_built = LENSLET_HAVE_CUDA != 0;

}  // namespace lenslet
