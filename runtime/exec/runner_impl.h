#pragma once
// The device-independent half of a Runner: checks inputs, then the device's half writes them and runs.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "lenslet/runner.h"
#include "lenslet/timeline.h"
#include "runtime/exec/plan.h"

namespace lenslet {

namespace cuda {
class Session;
}

class RunnerImpl {
 public:
  virtual ~RunnerImpl();
  RunnerImpl(const RunnerImpl&) = delete;
  RunnerImpl& operator=(const RunnerImpl&) = delete;

  /// One call at a time: Error(invalid_argument) for a second thread or an observer.
  class Turn {
   public:
    explicit Turn(RunnerImpl& runner);
    ~Turn() { runner_.turn_.store(0, std::memory_order_release); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    RunnerImpl& runner_;
  };

  virtual std::span<const Tensor> run(std::span<const Tensor> inputs);
  virtual void load_image(std::size_t input, const ImageView& image, const ImageSpec& spec, std::int64_t index);
  virtual std::span<const Tensor> run_loaded();
  virtual std::span<const Tensor> run(std::span<const IoTensor> inputs, const RunOptions& options);
  virtual std::span<const Tensor> run_loaded(const RunOptions& options);
  virtual void set_observer(Observer observer) = 0;
  virtual std::vector<double> time_device(int repeats) = 0;
  virtual Timeline timeline(std::span<const Tensor> inputs, int runs);
  virtual const PlanInfo& info() const { return plan().info; }

  // The device's half: writes the memory of input `input`, which exists, then runs the steps, which may overwrite the
  // inputs.
  virtual void write_input(std::size_t input, const Tensor& value) = 0;
  /// Errors as of to_input(), before anything is written.
  virtual void write_image(std::size_t input, const ImageView& image, const ImageSpec& spec, std::int64_t index) = 0;
  /// Zeros for one image.
  virtual void write_blank(std::size_t input, std::int64_t index) = 0;
  virtual std::span<const Tensor> run_steps() = 0;
  /// For the second part of a network (late.h): output `output` of the last run, on the host or device that computed
  /// it, and the same into an input of that part.
  virtual const Tensor& computed(std::size_t output) const = 0;
  virtual void take_over(std::size_t input, const Tensor& computed) { write_input(input, computed); }
  /// The Runner's own memory: writing one input there may change another given input.
  virtual std::span<const std::byte> own_memory() const = 0;

  // The device's half of runs on the application's memory, which the host has checked as far as it can.
  /// Makes the next run read that input in place, or queues its copy; null: back to the input's own memory. False: the
  /// caller must write it.
  virtual bool place_input(std::size_t /*input*/, const IoTensor* /*given*/) { return false; }
  /// Makes the next run write that output there; null: back to the output's own memory. False: the caller must copy it.
  virtual bool place_output(std::size_t /*output*/, const IoTensor* /*given*/) { return false; }
  /// Copies a run's output to its destination.
  virtual void copy_output(const Tensor& computed, const IoTensor& wanted);
  /// Orders following work after the application's queued work. Error(invalid_argument) on the CPU.
  virtual void wait_for(void* cuda_stream) = 0;
  /// Stops all use of the application's memory after an error.
  virtual void let_go() noexcept {}
  /// For the parts of a network (late.h).
  void stop_by(const std::stop_token& stop) { stop_ = stop; }

  const Model& model() const { return model_; }
  const Plan& plan() const { return *plan_; }
  const std::shared_ptr<const Plan>& shared_plan() const { return plan_; }

 protected:
  RunnerImpl(Model model, std::shared_ptr<const Plan> plan)
      : model_(std::move(model)), plan_(std::move(plan)), loaded_(plan_->graph.inputs.size()) {}

  const std::stop_token& stop() const { return stop_; }
  /// Error(cancelled) if the application has cancelled, after `done` steps of the plan.
  void end_if_cancelled(std::size_t done) const {
    if (stop_.stop_requested()) throw_cancelled(done);
  }

 private:
  void check_inputs(std::span<const Tensor> inputs) const;
  void check_count(std::size_t inputs) const;
  void check_input(std::size_t input, const Tensor& given, bool on_cuda = false) const;
  void check_outputs(std::span<const IoTensor> outputs) const;
  void check_loaded() const;
  /// PortInfo::unread: the input may be missing and is ignored.
  bool is_unread(std::size_t input) const { return plan_->graph.input_ports[input].unread; }
  void write_missing();
  bool is_own(const Tensor& given) const;
  void set_apart(std::size_t input, const Tensor& given);
  void place_at_home();
  void check_output(std::size_t output, const Tensor& given, DType dtype, const Shape& shape) const;
  void give(std::size_t input, const IoTensor& given, std::span<const IoTensor> outputs);
  template <typename Prepare>
  std::span<const Tensor> run_on_app_memory(const RunOptions& options, bool on_cuda, const Prepare& prepare);
  [[noreturn]] void throw_cancelled(std::size_t done) const;

  Model model_;  // keeps the constants alive
  std::shared_ptr<const Plan> plan_;
  std::vector<std::vector<bool>> loaded_;  // by input and image, since the last run; empty: none loaded
  std::vector<Tensor> apart_;              // by input: copies of those that lie in own_memory()
  std::vector<bool> placed_;               // outputs that the current run writes to the application's memory
  std::vector<Tensor> given_back_;         // outputs of the last run on the app's memory
  std::stop_token stop_;                   // of the current run
  bool away_ = false;                      // some input or output may be in the application's memory
  std::atomic<unsigned> turn_{0};          // current call's owner: 1 + fork_count(); a child does not inherit it
};

/// The one of median duration, with the median of the other durations.
Timeline median_of(std::vector<Timeline> taken, std::vector<double> undisturbed_us);

/// State shared by the parts of one network, made by the first one.
struct RunnerShare {
  std::shared_ptr<ThreadPool> pool;
  std::shared_ptr<cuda::Session> session;
};

/// Plans and creates the implementation that runs the plan. Errors as for Runner's constructor.
std::shared_ptr<RunnerImpl> make_runner(const Model& model, const PlanOptions& options, RunnerShare& share);
/// Error(limit) when memory for the arena is short.
std::shared_ptr<RunnerImpl> make_cpu_runner(Model model, std::shared_ptr<const Plan> plan, RunnerShare& share);
/// For a plan with a late part; `early` runs the plan.
std::shared_ptr<RunnerImpl> make_staged_runner(Model model, std::shared_ptr<const Plan> plan,
                                               std::shared_ptr<RunnerImpl> early, RunnerShare share);

/// For PlanOptions::other_shapes; `first` is planned for the given options.
std::shared_ptr<RunnerImpl> make_shapes_runner(const Model& model, const PlanOptions& options,
                                               std::shared_ptr<RunnerImpl> first, RunnerShare share);

namespace cuda {
/// Runs the network once on zeros and captures it. Error(device). Only in builds with CUDA.
std::shared_ptr<RunnerImpl> make_runner(Model model, std::shared_ptr<const Plan> plan, RunnerShare& share);
}  // namespace cuda

}  // namespace lenslet
