#pragma once
// The objects behind the handles of lenslet.h.

#include <atomic>
#include <stop_token>
#include <vector>

#include "c_api/handles.h"
#include "lenslet/lenslet.h"
#include "lenslet/runner.h"

namespace lenslet::c_api {

struct ModelObject {
  using Handle = lenslet_model;
  static constexpr auto handle_name = "lenslet_model";
  const Model model;
};

struct CancelObject {
  using Handle = lenslet_cancel;
  static constexpr auto handle_name = "lenslet_cancel";
  std::stop_source source;
};

/// State of one observer callback; owns its nchw copies.
struct EventObject {
  using Handle = lenslet_event_values;
  static constexpr auto handle_name = "lenslet_event_values";
  explicit EventObject(const LayerEvent& of) : event(&of) {}

  std::mutex mutex;         // other threads may read it
  const LayerEvent* event;  // null: it is over
  std::vector<Tensor> copies;
};

struct RunnerObject {
  using Handle = lenslet_runner;
  static constexpr auto handle_name = "lenslet_runner";
  RunnerObject(const Model& of, const PlanOptions& options) : model(of), runner(of, options) {}

  const Model model;
  Runner runner;
  std::vector<lenslet_tensor> results;    // of the last run; empty: no valid results
  std::vector<IoTensor> inputs, outputs;  // of the current run, kept to reuse their memory
  std::atomic<bool> at_work{false};
};

/// Locks a runner for one call: Error(invalid_argument) for an invalid handle or a busy runner.
class RunnerInUse {
 public:
  explicit RunnerInUse(const lenslet_runner* handle) : object_(Handles<RunnerObject>::get(handle)) {
    if (object_->at_work.exchange(true, std::memory_order_acquire))
      throw Error(ErrorKind::invalid_argument,
                  "the runner is at work: another thread is in it, or this call comes from a callback of its run",
                  object_->model.name());
  }
  RunnerInUse(const RunnerInUse&) = delete;
  RunnerInUse& operator=(const RunnerInUse&) = delete;
  ~RunnerInUse() { object_->at_work.store(false, std::memory_order_release); }
  RunnerObject* operator->() const { return object_.get(); }
  RunnerObject& operator*() const { return *object_; }

 private:
  std::shared_ptr<RunnerObject> object_;
};

}  // namespace lenslet::c_api
