#pragma once
// Checks a run's outputs against the network as loaded, in double precision. Finds wrong graph rewrites, which no check
// of single steps shows.

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "lenslet/check.h"
#include "oracle/oracle.h"

namespace lenslet::check {

/// Results of one run of a plan.
struct NetworkRun {
  PlanInfo plan;
  std::vector<Tensor> outputs;  ///< copies, as of Model::outputs()
  bool made_nan = false;        ///< a convolution spread a NaN among its pixels (LayerCheck::made_nan)
  bool large_integers = false;  ///< such as double rounds (LayerCheck::large_integers)
};

/// Calls CheckOptions::progress for the steps of a run.
class StepCounter {
 public:
  using Progress = std::function<void(std::size_t done, std::size_t total)>;
  StepCounter(const Progress& progress, const PlanInfo& plan) : progress_(progress), total_(plan.steps.size()) {
    passed(0);
  }
  void passed(std::size_t done) const {
    if (progress_) progress_(done, total_);
  }

 private:
  const Progress& progress_;
  std::size_t total_;
};

/// Names of the passes that may be left out.
std::vector<std::string> optional_passes();

/// The network in double precision: the graph without optional passes, each operator computed by its oracle from
/// earlier oracles' results. Alongside, the same with every result perturbed by its step's tolerance with random sign;
/// the resulting change of an output is that output's tolerance.
class NetworkReference {
 public:
  /// `plan`: the runs' options, except those that choose arithmetic and algorithms.
  NetworkReference(const Model& model, PlanOptions plan, std::span<const Tensor> inputs,
                   std::span<const NetworkRun> runs, const StepCounter::Progress& progress = {});
  /// A row for each output.
  std::vector<LayerCheck> check(const NetworkRun& run) const;

 private:
  struct Output {
    oracle::Array exact;
    std::vector<double> own, off;  ///< by element: its step's tolerance, and the largest change by the perturbations
    bool shaped = true;            ///< false: they differ in shape
  };
  std::map<std::string, Output> outputs_;
};

}  // namespace lenslet::check
