#pragma once
// Where kernels run.

#include <cstddef>
#include <string_view>

namespace lenslet {

enum class DeviceKind { cpu, cuda };
inline constexpr std::size_t device_kinds = 2;
constexpr std::string_view to_string(DeviceKind kind) { return kind == DeviceKind::cpu ? "cpu" : "cuda"; }

}  // namespace lenslet
