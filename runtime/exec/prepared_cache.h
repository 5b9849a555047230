#pragma once
// Cache of packed weights, shared by all Runners of a Model.

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

/// A key that equal requests of all plans share.
struct PreparedKey {
  std::string text;
  /// Data of which `text` has only a hash: compared byte by byte, and kept as long as the entry.
  std::vector<Tensor> constants = {};
};

struct PreparedWeights {
  std::shared_ptr<const void> data;
  std::size_t bytes = 0;
};

/// Thread-safe. Entries that no plan holds are kept up to `most_unused_bytes` in all; the least recently used are
/// evicted first.
class PreparedCache {
 public:
  explicit PreparedCache(std::size_t most_unused_bytes) : most_unused_bytes_(most_unused_bytes) {}

  /// The entry of each key. A missing one is made by make(its index), once per key, under the lock, by any pool thread
  /// or the caller, in any order. If one throws, none of the new ones is kept.
  std::vector<PreparedWeights> get(std::span<const PreparedKey> keys,
                                   const std::function<PreparedWeights(std::size_t)>& make, ThreadPool* pool);
  PreparedWeights get(const PreparedKey& key, const std::function<PreparedWeights()>& make) {
    return get(
               {&key, 1}, [&](std::size_t) { return make(); }, nullptr)
        .front();
  }
  /// Call after a plan was destroyed.
  void trim();
  /// Bytes of all entries, held by a plan or not.
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
