#pragma once
// Graphs within graphs: the branches of If.

#include "models/onnx_reader.h"

namespace lenslet {

/// Reads the branches of every If node of `nodes`, nested ones included (OnnxAttribute::subgraph). Values of enclosing
/// graphs that they use are appended to the node's inputs and become inputs of both branches, by the same names.
/// Subgraphs of other operators stay unread. Errors as for read_onnx_model; Error(limit) for branches nested deeper
/// than limits::subgraph_depth.
void read_subgraphs(std::vector<OnnxNode>& nodes);

/// Whether it is an If of ai.onnx.
bool is_if(const OnnxNode& node);

}  // namespace lenslet
