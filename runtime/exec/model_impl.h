#pragma once
// A Model's state: the loaded graph, and the caches shared by its Runners.

#include <memory>
#include <unordered_set>

#include "lenslet/model.h"
#include "runtime/exec/prepared_cache.h"
#include "runtime/graph/graph.h"

namespace lenslet {

class ModelImpl {
 public:
  ModelImpl(Graph loaded, Graph after_early_passes);
  /// A part of `whole`'s network, from its `typed`; shares its packed weights.
  ModelImpl(Graph part, std::shared_ptr<const ModelImpl> whole);

  const Graph source;  ///< as loaded: the file's own types; shapes of inputs as declared
  /// `source` after the passes before inference, with the same ValueIds; plans start from it.
  const Graph typed;
  const std::shared_ptr<PreparedCache> prepared;
  /// Memory of the loaded graph's constants. It outlives every part of the network, so an address identifies a
  /// constant.
  const std::shared_ptr<const std::unordered_set<const void*>> lasting;

 private:
  const std::shared_ptr<const ModelImpl> whole_;
};

/// Checks the loaded graph as far as its declared shapes allow (batch 1 for a free batch) and wraps it in a Model.
Model make_model(Graph graph);

}  // namespace lenslet
