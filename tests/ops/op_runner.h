#pragma once
// How the harness runs an operator once: on the CPU in lenslet-test-ops, on a CUDA device in lenslet-test-cuda-ops.
// Which one is decided by linking op_runner_main.cpp or its twin in tests/cuda.

#include <optional>
#include <string>
#include <vector>

#include "tests/ops/op_harness.h"

namespace lenslet::test {

/// One way in which a plan may call an operator.
struct Variant {
  Format layout = formats::nchw;
  int threads = 1;
  std::vector<int> constant = {};  ///< inputs known before the run
  int in_place = -1;               ///< the input that output 0 is written over
  std::string str() const;
};

class OpRunner {
 public:
  virtual ~OpRunner() = default;
  virtual std::vector<int> thread_counts() const = 0;
  /// Why the operator cannot be run here with these inputs, or nothing.
  virtual std::optional<std::string> refuse(const Op& op, const std::vector<InputInfo>& infos) const = 0;
  /// Into poisoned memory between guards; fails the current check when anything else is written.
  virtual std::vector<Tensor> run(const Op& op, const OpCase& c, const Variant& variant,
                                  const std::string& where) const = 0;
};

/// The runner that this executable tests.
const OpRunner& op_runner();
const OpRunner& cpu_op_runner();

bool contains(const std::vector<int>& list, std::size_t value);
std::vector<InputInfo> infos_of(const std::vector<Tensor>& inputs, const std::vector<int>& constant);
/// Copies of a case's inputs: those of the run in the variant's layout, constants as a file has them.
std::vector<Tensor> inputs_of(const OpCase& c, const Variant& variant);

}  // namespace lenslet::test
