#pragma once
// Launchers of reductions.

#include <cstddef>
#include <cstdint>

#include "base/dtypes.h"
#include "ops/reduce/reduce_kernels.h"

namespace lenslet {

/// Element types: of reductions; of extremes; of those that end in a root or a logarithm; of ArgMax and ArgMin.
using ReduceTypes = Types<float, std::int32_t, std::int64_t>;
using ExtremeTypes =
    Types<float, std::int32_t, std::int64_t, std::uint32_t, std::uint64_t, std::uint8_t, std::int8_t, bool>;
using RootTypes = Types<float>;
using ArgTypes = Types<float, std::int32_t, std::int64_t, std::uint8_t, std::int8_t>;

namespace cuda {

struct Context;

/// Bytes of device memory that reduce() and arg_extreme() need for these loops and element type.
std::size_t reduce_workspace_bytes(const reduce::Loops& loops, DType dtype = DType::f32);

/// to[kept] = the reduction of from[kept + reduced]; device addresses. `dtype` on both sides: one of ReduceTypes, for
/// max and min of ExtremeTypes, or f16 or bf16, rounded once. Floats accumulate in double, integers modulo 2^64, as on
/// the CPU; an H200, with double at half of float's rate, stays bound by memory. Bit-identical on all devices and in
/// all runs.
void reduce(const Context& context, ReduceKind kind, DType dtype, const reduce::Loops& loops, const void* from,
            void* to, std::byte* workspace);

/// The same of ReduceKind::l2, from `dtype`, float32, f16 or bf16, to float32.
void norms(const Context& context, DType dtype, const reduce::Loops& loops, const void* from, float* to,
           std::byte* workspace);

/// to[kept] = position along the reduced axis (one nonempty loop of `loops`) of the largest or smallest element, the
/// first or last of equals. `dtype` one of ArgTypes; device addresses; `workspace` has reduce_workspace_bytes(loops).
/// NaN beats all numbers in both, as on the CPU.
void arg_extreme(const Context& context, bool largest, bool last, DType dtype, const reduce::Loops& loops,
                 const void* from, std::int64_t* to, std::byte* workspace);

}  // namespace cuda
}  // namespace lenslet
