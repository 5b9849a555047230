#pragma once
// What the workers of a ThreadPool do, and when: the data of Runner::timeline.

#include <chrono>
#include <cstddef>
#include <vector>

#include "lenslet/timeline.h"

namespace lenslet {

/// A lane for each worker, which alone writes it. Lane 0 is the calling thread's, which is in a step, alone or in a
/// loop, or outside the steps.
class TimeStamps {
 public:
  explicit TimeStamps(int workers) : lanes_(static_cast<std::size_t>(workers)) {}
  TimeStamps(const TimeStamps&) = delete;
  TimeStamps& operator=(const TimeStamps&) = delete;
  ~TimeStamps() { current_ = nullptr; }

  /// A run of the calling thread begins; forgets all spans. Until stop() these are the thread's current ones.
  void start();
  /// The run has ended: its spans and duration. Allocates.
  Timeline stop();
  /// After stop(): grows the lanes if spans were lost; false if none was.
  bool grow();

  /// Null: the calling thread's work is not stamped.
  static TimeStamps* current() noexcept { return current_; }
  /// The calling thread goes on with that step, or outside the steps (-1).
  static void enter_step(int step) {
    if (current_ != nullptr) current_->enter(step < 0 ? -1 : current_->first_step_ + step);
  }
  /// Of a part of a network: adds `steps` to the numbers of the steps that follow.
  static void count_steps_from(int steps) {
    if (current_ != nullptr) current_->first_step_ += steps;
  }
  /// Around a loop that the calling thread shares with others.
  void end_alone();
  void begin_alone() { alone_since_us_ = now_us(); }

  double now_us() const { return std::chrono::duration<double, std::micro>(Clock::now() - begin_).count(); }
  int step() const { return step_; }
  /// Until now. A piece that contains stamped rows is left out.
  void add(int worker, int step, TimelineSpan::Kind kind, double begin_us) noexcept;

 private:
  using Clock = std::chrono::steady_clock;
  struct alignas(64) Lane {
    std::vector<TimelineSpan> spans;
    std::size_t used = 0, lost = 0;
  };

  void enter(int step);

  static inline constinit thread_local TimeStamps* current_ = nullptr;
  std::vector<Lane> lanes_;
  Clock::time_point begin_{};
  int step_ = -1, first_step_ = 0;
  double alone_since_us_ = 0;
};

}  // namespace lenslet
