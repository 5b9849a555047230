#pragma once
// What an app may do to a Runner, on any device.

#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "lenslet/tensor.h"
#include "tests/exec/small_net.h"

namespace lenslet::test {

template <typename F>
ErrorKind kind_of(const F& f) {
  return error_of(f).kind();
}

inline bool equal(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() && std::memcmp(a.data(), b.data(), a.bytes()) == 0;
}

/// Runs `in_child` in a child that fork() makes; true when it returns true there within 30 s.
template <typename F>
bool holds_in_child(const F& in_child) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);
    bool holds = false;
    try {
      holds = in_child();
    } catch (...) {
    }
    ::_exit(holds ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void check_outputs_given_back(const std::string& device);
void check_outputs_belong_to_the_runner(const std::string& device);
void check_observers_that_reach_for_their_runner(const std::string& device);

}  // namespace lenslet::test
