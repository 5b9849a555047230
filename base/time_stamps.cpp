#include "base/time_stamps.h"

#include <fmt/format.h>

#include <algorithm>

namespace lenslet {

namespace {

// Below this a gap, or what lies between two loops of a step, is no span of its own.
constexpr double shortest_us = 1;

}  // namespace

void TimeStamps::start() {
  for (Lane& lane : lanes_) lane.used = lane.lost = 0;
  step_ = -1;
  first_step_ = 0;
  alone_since_us_ = 0;
  current_ = this;
  begin_ = Clock::now();
}

void TimeStamps::enter(int step) {
  end_alone();
  step_ = step;
  begin_alone();
}

void TimeStamps::end_alone() {
  if (step_ >= 0 || now_us() - alone_since_us_ >= shortest_us) add(0, step_, TimelineSpan::Kind::step, alone_since_us_);
}

void TimeStamps::add(int worker, int step, TimelineSpan::Kind kind, double begin_us) noexcept {
  if (static_cast<std::size_t>(worker) >= lanes_.size()) return;  // an observer runs something else
  Lane& lane = lanes_[static_cast<std::size_t>(worker)];
  const double end_us = now_us();
  if (lane.used > 0) {
    TimelineSpan& last = lane.spans[lane.used - 1];
    if (last.end_us > begin_us) return;
    const bool last_is_short = last.end_us - last.begin_us < shortest_us;
    if (last.step == step && begin_us - last.end_us < shortest_us &&
        (last.kind == kind || last_is_short || end_us - begin_us < shortest_us)) {
      last.end_us = end_us;
      if (last_is_short) last.kind = kind;
      return;
    }
  }
  if (lane.used == lane.spans.size())
    ++lane.lost;
  else
    lane.spans[lane.used++] = {.lane = worker, .step = step, .kind = kind, .begin_us = begin_us, .end_us = end_us};
}

Timeline TimeStamps::stop() {
  enter(-1);
  current_ = nullptr;
  Timeline timeline;
  timeline.run_us = now_us();
  for (const Lane& lane : lanes_) {
    timeline.lanes.push_back(fmt::format("thread {}", timeline.lanes.size() + 1));
    timeline.spans.insert(timeline.spans.end(), lane.spans.begin(),
                          lane.spans.begin() + static_cast<std::ptrdiff_t>(lane.used));
  }
  return timeline;
}

bool TimeStamps::grow() {
  std::size_t lost = 0;
  for (const Lane& lane : lanes_) lost = std::max(lost, lane.lost);
  // Twice as many: a worker may take what another one took.
  if (lost > 0)
    for (Lane& lane : lanes_) lane.spans.resize(lane.spans.size() + 2 * lost);
  return lost > 0;
}

}  // namespace lenslet
