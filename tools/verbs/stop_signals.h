#pragma once
// ^C, handled so that a verb can finish its output.

#include <csignal>
#include <iterator>

namespace lenslet::tool {

/// While it lives, the first SIGINT or SIGTERM is only noted; the second acts as usual. Ignored signals stay ignored,
/// as under nohup. One at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  bool came() const;

 private:
  static constexpr int signals[] = {SIGINT, SIGTERM};
  struct sigaction before_[std::size(signals)] = {};
};

}  // namespace lenslet::tool
