#pragma once
// From an ONNX file's bytes to a Graph.

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lenslet/model.h"
#include "models/mapped_file.h"
#include "runtime/graph/graph.h"

namespace lenslet {

/// Reads and checks a ModelProto: header and opsets, ports, initializers, every node against the op table. One Error
/// lists every node, port and value at fault. Nodes are put in topological order; Constant nodes and initializers
/// become constants, in the types that the file has. `owner` keeps `bytes` alive, so that weights can stay in them;
/// null: weights are copied. `name` becomes Graph::name; it is not part of the Errors' contexts. Kinds: invalid_model,
/// unsupported, limit, io (external data). `external_files` (optional) receives the files that weights stay in.
Graph load_onnx(std::span<const std::byte> bytes, const std::shared_ptr<const void>& owner, const LoadOptions& options,
                const std::string& name, std::vector<MappedFile>* external_files = nullptr);

}  // namespace lenslet
