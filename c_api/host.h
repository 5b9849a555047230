#pragma once
// Adapters from the C executor and allocator to lenslet's.

#include <memory>

#include "lenslet/host.h"
#include "lenslet/lenslet.h"
#include "lenslet/model.h"

namespace lenslet::c_api {

/// A resource lent by the application; release() is called only after it was taken over.
class Lent {
 public:
  Lent(void* context, void (*release)(void*)) : context_(context), release_(release) {}
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;
  ~Lent() {
    if (taken_over_ && release_ != nullptr) release_(context_);
  }
  void take_over() { taken_over_ = true; }
  void* context() const { return context_; }

 private:
  void* context_;
  void (*release_)(void*);
  bool taken_over_ = false;
};

/// The executor and allocator of `options`, or null. Error(invalid_argument) for missing functions.
class Host {
 public:
  explicit Host(const lenslet_plan_options& options);
  void give_to(PlanOptions& options) const;
  /// Passes ownership to the runner.
  void take_over();

 private:
  class CExecutor;
  class CAllocator;
  std::shared_ptr<CExecutor> executor_;
  std::shared_ptr<CAllocator> allocator_;
};

}  // namespace lenslet::c_api
