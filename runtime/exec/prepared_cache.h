#pragma once
// Transformed weights, shared by all Runners of a Model.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
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

  /// Of each key. What is not there, make(its index) makes, once a key, under the lock; by any thread of the pool, in
  /// any order, or by the caller. When one throws, none of them stays.
  std::vector<PreparedWeights> get(std::span<const PreparedKey> keys,
                                   const std::function<PreparedWeights(std::size_t)>& make, ThreadPool* pool);
  PreparedWeights get(const PreparedKey& key, const std::function<PreparedWeights()>& make) {
    return get(
               {&key, 1}, [&](std::size_t) { return make(); }, nullptr)
        .front();
  }
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
  using Entries = std::multimap<std::string, Entry>;
  Entries::iterator find(const PreparedKey& key);
  void trim_locked();

  const std::size_t most_unused_bytes_;
  mutable std::mutex mutex_;
  Entries entries_;
  std::uint64_t asked_ = 0;
};

}  // namespace lenslet
