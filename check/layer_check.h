#pragma once
// Building blocks of the rows of lenslet/check.h.

#include "lenslet/check.h"

namespace lenslet::check {

inline constexpr const char* large_integers = "integers beyond 2^53, which the reference rounds";

bool is_real(DType dtype) noexcept;
/// The row of one step of a plan.
LayerCheck row_of(const LayerEvent& event, const PlanInfo& plan, std::string_view forced);
/// The row of a kernel that refuses it.
LayerCheck refusal_of(const StepInfo& step, const StepCandidate& refused, const PlanInfo& plan);

/// Median step times of a network, by name, and the number of runs: at least 3, for `seconds`.
struct StepTime {
  std::string name;
  double ms = 0;
  int runs = 0;
};
std::vector<StepTime> time_steps(const Model& model, const PlanOptions& plan, std::span<const Tensor> inputs,
                                 double seconds);
void add_times(std::span<LayerCheck> rows, std::span<const StepTime> times);

}  // namespace lenslet::check
