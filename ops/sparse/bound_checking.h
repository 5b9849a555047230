#pragma once
// Bound CUDA kernels of sparse values that report faults in the CPU's words.

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "ops/core/fault.h"
#include "ops/core/kernel.h"
#include "ops/sparse/site_fault.h"

namespace lenslet {

/// As bound(), for a run whose kernels write SiteFaultWords to Context::fault.
template <typename Run>
std::unique_ptr<const BoundKernel> bound_checking(Run run, std::size_t workspace_bytes, SiteFaultContext context) {
  class Bound final : public BoundKernel, public TellsFault {
   public:
    Bound(Run run, std::size_t bytes, SiteFaultContext context)
        : run_(std::move(run)), bytes_(bytes), context_(std::move(context)) {}
    std::size_t workspace_bytes() const override { return bytes_; }
    void run(const KernelRun& run) const override { run_(run); }
    std::string fault() const override { return site_fault_text({}, context_); }
    std::string fault_of(FaultWords words) const override { return site_fault_text(read_fault(words), context_); }

   private:
    Run run_;
    std::size_t bytes_;
    SiteFaultContext context_;
  };
  return std::make_unique<Bound>(std::move(run), workspace_bytes, std::move(context));
}

}  // namespace lenslet
