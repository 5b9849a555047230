#pragma once
// Turns errors of C libraries, whose error functions must not return, into exceptions: the only setjmp and longjmp.

#include <fmt/format.h>

#include <cerrno>
#include <csetjmp>
#include <iterator>
#include <new>

#include "photos/pictures/decoders.h"

namespace lenslet::photos {

class LibraryCalls {
 public:
  explicit LibraryCalls(const char* format) : format_(format) {}

  /// Runs `step`, which calls a C library. fail() in it becomes BadImage, or bad_alloc if memory ran out. It skips
  /// destructors, so `step` must have no local object that needs one.
  template <typename Step>
  void run(const Step& step) {
    errno = 0;
    if (setjmp(jump_) == 0) return step();
    if (errno == ENOMEM) throw std::bad_alloc();
    throw BadImage(fmt::format("the {} file is damaged or cut short ({})", format_, reason_));
  }
  /// For a library's error function, during run().
  [[noreturn]] void fail(const char* reason) {
    fmt::format_to_n(reason_, std::size(reason_) - 1, "{}", reason);
    std::longjmp(jump_, 1);
  }

 private:
  std::jmp_buf jump_;
  const char* format_;
  char reason_[200] = {};
};

}  // namespace lenslet::photos
