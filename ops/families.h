#pragma once
// What each family's rows.cpp contributes to the table (table.cpp).

#include <span>

#include "ops/core/kernel.h"
#include "ops/core/never.h"
#include "ops/core/op.h"

namespace lenslet {

inline constexpr int any_number = -1;               // of inputs or outputs, in a row
inline constexpr std::string_view own = "lenslet";  // our domain: sparse operators, and steps that the passes insert

std::span<const OpRow> conv_rows();
std::span<const OpRow> elementwise_rows();
std::span<const OpRow> gemm_rows();
std::span<const OpRow> movement_rows();
std::span<const OpRow> normalization_rows();
std::span<const OpRow> pool_rows();
std::span<const OpRow> quantized_rows();
std::span<const OpRow> recurrent_rows();
std::span<const OpRow> reduce_rows();
std::span<const OpRow> resample_rows();
std::span<const OpRow> shape_rows();
std::span<const OpRow> sparse_rows();

/// Kernels other than SimpleKernels, in the order in which each operator asks them.
std::span<const KernelRow> conv_kernels();
std::span<const KernelRow> gemm_kernels();
std::span<const KernelRow> sparse_kernels();

}  // namespace lenslet
