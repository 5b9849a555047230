#pragma once
// Transformed weights, shared by all Runners of a Model.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lenslet/tensor.h"

namespace lenslet {

/// What a plan asks for: found again by every plan that wants the same.
struct PreparedKey {
  std::string text;
  /// What `text` only has a hash of: compared byte by byte, and kept as long as the entry.
  std::vector<Tensor> constants = {};
};

struct PreparedWeights {
  std::shared_ptr<const void> data;
  std::size_t bytes = 0;
};

/// Thread-safe. What no plan holds any more stays for the next one that asks, up to `most_unused_bytes` in all: then
/// what was asked for longest ago goes first.
class PreparedCache {
 public:
  explicit PreparedCache(std::size_t most_unused_bytes) : most_unused_bytes_(most_unused_bytes) {}

  /// Made by `make` on the first call, under the lock.
  PreparedWeights get(const PreparedKey& key, const std::function<PreparedWeights()>& make);
  /// To be called when a plan has gone.
  void trim();
  /// Of all entries, held by a plan or not.
  std::size_t bytes() const;

 private:
  struct Entry {
    PreparedWeights weights;
    std::vector<Tensor> constants;
    std::uint64_t last_asked = 0;
  };
  void trim_locked();

  const std::size_t most_unused_bytes_;
  mutable std::mutex mutex_;
  std::multimap<std::string, Entry> entries_;
  std::uint64_t asked_ = 0;
};

}  // namespace lenslet
