#pragma once
// Runners of one network for different shapes: the last few that were used.

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "runtime/exec/runner_impl.h"

namespace lenslet {

class KeptRunners {
 public:
  explicit KeptRunners(std::size_t most) : most_(most) {}

  /// The one kept under `key`, the last one used from now on; or null.
  RunnerImpl* use(const std::string& key) {
    const auto found = std::ranges::find(kept_, key, &Entry::key);
    if (found == kept_.end()) return nullptr;
    std::rotate(found, found + 1, kept_.end());
    return kept_.back().runner.get();
  }
  /// Makes room for one more: the one that was not used for longest goes.
  void make_room() {
    if (kept_.size() == most_) kept_.erase(kept_.begin());
  }
  RunnerImpl& add(std::string key, std::shared_ptr<RunnerImpl> runner) {
    kept_.push_back({std::move(key), std::move(runner)});
    return *kept_.back().runner;
  }

  /// The last one used; null: none was.
  RunnerImpl* last() const { return kept_.empty() ? nullptr : kept_.back().runner.get(); }
  template <typename Work>
  void for_each(const Work& work) const {
    for (const Entry& entry : kept_) work(*entry.runner);
  }

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<RunnerImpl> runner;
  };
  std::size_t most_;
  std::vector<Entry> kept_;  // the last one used stands last
};

}  // namespace lenslet
