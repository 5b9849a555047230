#pragma once
// What a Model holds: the graph as loaded, and the caches its Runners share.

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "lenslet/model.h"
#include "runtime/graph/graph.h"

namespace lenslet {

/// A transformed weight, found again by every plan that wants the same.
struct PreparedWeights {
  std::shared_ptr<const void> data;
  std::size_t bytes = 0;
};

class ModelImpl {
 public:
  ModelImpl(Graph loaded, Graph after_early_passes) : source(std::move(loaded)), typed(std::move(after_early_passes)) {}

  const Graph source;  ///< as loaded: the file's own types; shapes of inputs as declared
  /// After the passes that come before inference: what plans are made from. What is in `source` has the same ValueIds.
  const Graph typed;

  /// The prepared weights under `key`, made by `make` on the first call. Thread-safe; `make` runs under the lock.
  template <typename Make>
  PreparedWeights prepared(const std::string& key, Make&& make) {
    const std::lock_guard lock(mutex_);
    auto [it, inserted] = prepared_.try_emplace(key);
    if (inserted) {
      try {
        it->second = make();
      } catch (...) {
        prepared_.erase(it);
        throw;
      }
    }
    return it->second;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, PreparedWeights> prepared_;
};

/// Checks the loaded graph as far as its declared shapes allow (batch 1 for a free batch) and wraps it in a Model.
Model make_model(Graph graph);

}  // namespace lenslet
