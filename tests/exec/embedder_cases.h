#pragma once
// What an app may do with a Runner, on any device.

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "lenslet/tensor.h"
#include "tests/exec/small_net.h"
#include "tests/tensors.h"

namespace lenslet::test {

template <typename F>
ErrorKind kind_of(const F& f) {
  return error_of(f).kind();
}

/// Polls every millisecond; true as soon as `holds()`, false after 10 s.
template <typename F>
bool comes_true(const F& holds) {
  for (int wait = 0; wait < 10000; ++wait) {
    if (holds()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

/// True if all other threads of this process sleep.
inline bool others_sleep() {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (task.path().filename() == std::to_string(::gettid())) continue;
    std::string stat;
    std::getline(std::ifstream(task.path() / "stat"), stat);
    const auto name_ends = stat.rfind(") ");
    if (name_ends == std::string::npos || stat[name_ends + 2] != 'S') return false;
  }
  return true;
}

/// Runs `in_child` in a forked child; true if it returns true within 30 s. Forks when all workers are idle: a starting
/// one may hold the lock of a sanitizer's allocator, for which the child would wait forever (clang 14, 2 % of runs on a
/// busy machine; the C library's allocator supports fork()).
template <typename F>
bool holds_in_child(const F& in_child) {
  if (!comes_true(others_sleep)) return false;
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
