#pragma once
// What a Model holds: the graph as loaded, and the caches its Runners share.

#include <memory>
#include <unordered_set>

#include "lenslet/model.h"
#include "runtime/exec/prepared_cache.h"
#include "runtime/graph/graph.h"

namespace lenslet {

class ModelImpl {
 public:
  ModelImpl(Graph loaded, Graph after_early_passes);
  /// A part of `whole`'s network, out of its `typed`: prepared weights are shared.
  ModelImpl(Graph part, std::shared_ptr<const ModelImpl> whole);

  const Graph source;  ///< as loaded: the file's own types; shapes of inputs as declared
  /// After the passes that come before inference: what plans are made from. What is in `source` has the same ValueIds.
  const Graph typed;
  const std::shared_ptr<PreparedCache> prepared;
  /// Memory of the loaded graph's constants: it lasts as long as any part of the network, so that an address tells what
  /// is there.
  const std::shared_ptr<const std::unordered_set<const void*>> lasting;

 private:
  const std::shared_ptr<const ModelImpl> whole_;
};

/// Checks the loaded graph as far as its declared shapes allow (batch 1 for a free batch) and wraps it in a Model.
Model make_model(Graph graph);

}  // namespace lenslet
