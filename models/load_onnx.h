#pragma once
// From an ONNX file's bytes to a Graph.

#include <cstddef>
#include <span>
#include <string>

#include "lenslet/model.h"
#include "models/model_file.h"
#include "runtime/graph/graph.h"

namespace lenslet {

/// Reads and checks a ModelProto: header and opsets, ports, initializers, every node against the op table. One Error
/// lists every node, port and value at fault. Nodes are put in topological order; Constant nodes and initializers
/// become constants, in the types that the file has. `file` owns `bytes` and provides the large weights; null: `bytes`
/// is complete, and weights are copied. `name` becomes Graph::name and is not part of the Errors' contexts. Kinds:
/// invalid_model, unsupported, limit, io.
Graph load_onnx(std::span<const std::byte> bytes, ModelFile* file, const LoadOptions& options, const std::string& name);

}  // namespace lenslet
