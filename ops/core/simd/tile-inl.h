// Shared parts of kernels with a tile of accumulators in registers. Included by files that Highway compiles once per
// instruction set: the guard toggles, so that each target sees it once.
#if defined(LENSLET_OPS_CORE_SIMD_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LENSLET_OPS_CORE_SIMD_TILE_INL_H_
#undef LENSLET_OPS_CORE_SIMD_TILE_INL_H_
#else
#define LENSLET_OPS_CORE_SIMD_TILE_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

// Not unrolled under sanitizers: clang would instrument the large functions for more than ten minutes.
#undef LENSLET_TILE_INLINE
#define LENSLET_TILE_INLINE HWY_INLINE
#ifdef __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#undef HWY_UNROLL
#define HWY_UNROLL(factor)
#undef LENSLET_TILE_INLINE
#define LENSLET_TILE_INLINE HWY_NOINLINE
#endif
#endif

HWY_BEFORE_NAMESPACE();
namespace lenslet::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

/// Floats per vector.
inline std::int64_t vector_lanes() { return static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<float>())); }

}  // namespace
}  // namespace lenslet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
