#pragma once
// What an app may do to a Runner, on any device.

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

void check_outputs_given_back(const std::string& device);
void check_outputs_belong_to_the_runner(const std::string& device);
void check_observers_that_reach_for_their_runner(const std::string& device);

}  // namespace lenslet::test
