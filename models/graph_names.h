#pragma once
// Who defines which name in an ONNX graph, and which node waits for which.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "models/onnx_reader.h"
#include "models/problems.h"

namespace lenslet {

/// Where a value comes from. An initializer that is also listed as an input (the rule up to IR 3, a default value
/// since) is an initializer, unless it is overridden.
struct Origin {
  enum class Kind { initializer, input, node };
  Kind kind = Kind::node;
  std::size_t index = 0;  ///< in OnnxGraph's list of that kind
};

class GraphNames {
 public:
  /// Adds doubly defined and nameless values to `problems`. `overridden`: initializers that do not count.
  GraphNames(const OnnxGraph& graph, Problems& problems, std::span<const std::string> overridden = {});

  const Origin* find(std::string_view value) const;
  /// Never empty, and unique: nodes without a name are called "Conv_12" after operator and index.
  const std::string& node_name(std::size_t node) const { return node_names_[node]; }

  /// Indices of nodes in an order in which they can run. Nodes that read what nobody defines and cycles are added to
  /// `problems`; with a cycle the file's order is returned.
  std::vector<std::size_t> order(Problems& problems) const;

 private:
  void define(std::string_view value, Origin origin, Problems& problems);
  std::string describe(const Origin& origin) const;
  void name_nodes();

  const OnnxGraph& graph_;
  std::unordered_map<std::string_view, Origin> origins_;
  std::vector<std::string> node_names_;
};

}  // namespace lenslet
