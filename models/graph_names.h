#pragma once
// Definitions of names in an ONNX graph, and dependencies between nodes.

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

/// Origin of a value. An initializer that is also an input (required up to IR 3, a default value since) counts as an
/// initializer unless overridden.
struct Origin {
  enum class Kind { initializer, input, node };
  Kind kind = Kind::node;
  std::size_t index = 0;  ///< in OnnxGraph's list of that kind
};

class GraphNames {
 public:
  /// Adds doubly defined and nameless values to `problems`. `overridden`: initializers to ignore.
  GraphNames(const OnnxGraph& graph, Problems& problems, std::span<const std::string> overridden = {});

  const Origin* find(std::string_view value) const;
  /// Never empty, and unique: nodes without a name are called "Conv_12" after operator and index.
  const std::string& node_name(std::size_t node) const { return node_names_[node]; }

  /// Indices of nodes in an order in which they can run. Adds undefined inputs and cycles to `problems`; returns the
  /// file's order if there is a cycle.
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
