#pragma once
// The CPU's floating-point environment, independent of the app's settings for its threads.

#if defined(__SSE__)
#include <xmmintrin.h>
#else
#include <cfenv>
#endif

namespace lenslet {

/// Sets the calling thread's environment and restores it at the end, flags included: round to nearest, no traps,
/// denormals kept, or with `flush_denormals` operands and results flushed to zero (x86 only).
class FloatEnvironment {
 public:
#if defined(__SSE__)
  explicit FloatEnvironment(bool flush_denormals = false) noexcept : before_(_mm_getcsr()) { set(flush_denormals); }
  ~FloatEnvironment() { _mm_setcsr(before_); }
  /// Sets it permanently, for our own threads.
  static void set(bool flush_denormals) noexcept {
    constexpr unsigned all_masked = 0x1f80, flush_results = 0x8000, flush_operands = 0x40;
    _mm_setcsr(flush_denormals ? all_masked | flush_results | flush_operands : all_masked);
  }
#else
  explicit FloatEnvironment(bool flush_denormals = false) noexcept {
    std::fegetenv(&before_);
    set(flush_denormals);
  }
  ~FloatEnvironment() { std::fesetenv(&before_); }
  static void set(bool /*flush_denormals*/) noexcept { std::fesetenv(FE_DFL_ENV); }
#endif
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;

 private:
#if defined(__SSE__)
  unsigned before_;
#else
  std::fenv_t before_;
#endif
};

}  // namespace lenslet
