#pragma once
// Runs passes and verifies each result against the types that its operators infer.

#include <memory>
#include <vector>

#include "runtime/passes/passes.h"

namespace lenslet {

/// Passes declare the types of values they create, and kernels write that much memory, so a wrong type must be caught.
/// After each pass the types of all nodes that it changed are inferred again.
class CheckedPasses {
 public:
  /// `graph` has its shapes inferred.
  CheckedPasses(Graph& graph, const PassContext& context);

  /// Error(internal) "pass NAME: node conv1 (Conv): y is float32 [1,8,4,4], but its operator makes float32 [1,4,4,8]".
  void run(const Pass& pass);

 private:
  /// Each node when its types were last inferred, by its first output.
  struct Seen {
    std::shared_ptr<const Op> op = {};
    std::vector<ValueId> inputs = {}, outputs = {};
  };
  /// Everything that determines its types.
  struct SeenValue {
    TensorType type = {};
    bool typed = false;
    const void* constant = nullptr;
    friend bool operator==(const SeenValue&, const SeenValue&) = default;
  };

  void look_again(bool infer);
  void infer(const Node& node) const;
  void check_ports() const;

  Graph& graph_;
  const PassContext& context_;
  std::vector<Seen> nodes_;
  std::vector<SeenValue> values_;
  std::vector<bool> changed_;
  std::vector<TensorType> inputs_, outputs_;  ///< of the network
};

}  // namespace lenslet
