#pragma once
// LRU cache of one network's Runners for different shapes.

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

  /// The Runner under `key`, marked most recently used; or null.
  RunnerImpl* use(const std::string& key) {
    const auto found = std::ranges::find(kept_, key, &Entry::key);
    if (found == kept_.end()) return nullptr;
    std::rotate(found, found + 1, kept_.end());
    return kept_.back().runner.get();
  }
  /// Evicts the least recently used Runner if the cache is full.
  void make_room() {
    if (kept_.size() == most_) kept_.erase(kept_.begin());
  }
  RunnerImpl& add(std::string key, std::shared_ptr<RunnerImpl> runner) {
    kept_.push_back({std::move(key), std::move(runner)});
    return *kept_.back().runner;
  }

  /// The most recently used one, or null.
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
  std::vector<Entry> kept_;  // most recently used last
};

}  // namespace lenslet
