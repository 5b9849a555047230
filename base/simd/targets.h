// Selects Highway's instruction sets; included before any Highway header. SSE4 and SSE2 serve old machines; SSSE3 and
// AVX3_DL add nothing for fp32 kernels, and SVE's vectors of unknown length cannot be stored in arrays (NEON runs
// there). A file that multiplies bytes defines LENSLET_SIMD_BYTE_PRODUCTS first, since AVX3_DL has instructions for
// that.
#ifndef LENSLET_OPS_SIMD_TARGETS_H_
#define LENSLET_OPS_SIMD_TARGETS_H_

// NOLINTBEGIN(modernize-macro-to-enum): Highway reads a macro; the names in it are Highway's.
#ifdef LENSLET_SIMD_BYTE_PRODUCTS
#define HWY_WANT_AVX3_DL
#define LENSLET_SIMD_WITHOUT_AVX3_DL 0
#else
#define LENSLET_SIMD_WITHOUT_AVX3_DL HWY_AVX3_DL
#endif
// Sanitizers compile AVX2 only (LENSLET_SANITIZE_ALL: and the baseline): more targets of the same source would double
// the kernels' compile time. The Release build compiles and tests all of them. Such a build needs a machine with AVX2.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define LENSLET_SIMD_FEW_TARGETS (HWY_SSE4 | HWY_AVX3)
#if defined(__x86_64__) && !LENSLET_SANITIZE_ALL
#define HWY_BASELINE_TARGETS HWY_AVX2
#endif
#endif
#endif
#ifndef LENSLET_SIMD_FEW_TARGETS
#define LENSLET_SIMD_FEW_TARGETS 0
#endif
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS                                                                                \
  (LENSLET_SIMD_FEW_TARGETS | HWY_SSSE3 | LENSLET_SIMD_WITHOUT_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | \
   HWY_SVE2_128 | HWY_RVV)
#endif
// NOLINTEND(modernize-macro-to-enum)

#endif  // LENSLET_OPS_SIMD_TARGETS_H_
