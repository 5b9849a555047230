#pragma once
// Inlines a model file's functions (FunctionProto); ONNX's IR specification, "Model-local functions".

#include <deque>
#include <string>

#include "models/onnx_reader.h"

namespace lenslet {

/// Replaces every call in `model`'s graph, branches and functions included, by the function's nodes. Their names are
/// prefixed with the call's ("block/Conv_3") and stored in `names`; it and `model.functions` must outlive the graph.
/// Branches must have been read (subgraphs.h). Error(invalid_model) for recursive functions and calls with too many
/// inputs or outputs, Error(limit) if the inlined graph exceeds limits.h.
void inline_functions(OnnxModel& model, std::deque<std::string>& names);

}  // namespace lenslet
