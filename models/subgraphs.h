#pragma once
// Graphs within graphs: the branches of If.

#include "models/onnx_reader.h"

namespace lenslet {

/// Of every If node of `nodes`, and of those within: its branches are read (OnnxAttribute::subgraph), and what they use
/// of the graphs around them becomes inputs of the node, behind those it has, and inputs of both branches, by the same
/// names. Other operators keep their subgraphs unread. Errors as of read_onnx_model; Error(limit) for branches more
/// than limits::subgraph_depth deep.
void read_subgraphs(std::vector<OnnxNode>& nodes);

/// Is it an If of ai.onnx?
bool is_if(const OnnxNode& node);

}  // namespace lenslet
