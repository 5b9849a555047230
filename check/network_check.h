#pragma once
// The outputs of a whole run against the network as its file has it, in double precision: what no check of single steps
// sees is a graph that a pass made another one.

#include <map>
#include <span>
#include <string>
#include <vector>

#include "lenslet/check.h"
#include "oracle/oracle.h"

namespace lenslet::check {

/// What one run of a plan made.
struct NetworkRun {
  PlanInfo plan;
  std::vector<Tensor> outputs;  ///< copies, as of Model::outputs()
  bool made_nan = false;        ///< a convolution spread a NaN among its pixels (LayerCheck::made_nan)
  bool large_integers = false;  ///< such as double rounds (LayerCheck::large_integers)
};

/// Names of the passes that may be left out.
std::vector<std::string> optional_passes();

/// The network in double precision: the graph with no pass that may be left out, each operator by its oracle, fed with
/// what the oracles before it made. Beside it, the same with every result off by as much as the runs' steps may be, at
/// random sign: how far that takes an output is what a run's may be off by.
class NetworkReference {
 public:
  /// `plan` as the runs were planned, but for what decides how they compute.
  NetworkReference(const Model& model, PlanOptions plan, std::span<const Tensor> inputs,
                   std::span<const NetworkRun> runs);
  /// A row for each output.
  std::vector<LayerCheck> check(const NetworkRun& run) const;

 private:
  struct Output {
    oracle::Array exact;
    std::vector<double> own, off;  ///< by element: what its step may be off by, what the draws differ by at most
    bool shaped = true;            ///< false: they differ in shape
  };
  std::map<std::string, Output> outputs_;
};

}  // namespace lenslet::check
