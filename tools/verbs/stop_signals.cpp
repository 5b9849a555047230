#include "tools/verbs/stop_signals.h"

#include <atomic>

namespace lenslet::tool {

namespace {

std::atomic<bool> noted = false;
static_assert(std::atomic<bool>::is_always_lock_free);  // for the handler

}  // namespace

StopSignals::StopSignals() {
  noted = false;
  struct sigaction note {};
  note.sa_handler = [](int) { noted = true; };
  note.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  for (std::size_t i = 0; i < std::size(signals); ++i) {
    sigaction(signals[i], nullptr, &before_[i]);
    if (before_[i].sa_handler != SIG_IGN) sigaction(signals[i], &note, nullptr);
  }
}

StopSignals::~StopSignals() {
  for (std::size_t i = 0; i < std::size(signals); ++i) sigaction(signals[i], &before_[i], nullptr);
}

bool StopSignals::came() const { return noted; }

}  // namespace lenslet::tool
