#pragma once
// Functions of a model file (FunctionProto), put in the place of the nodes that call them. ONNX's IR specification,
// "Model-local functions".

#include <deque>
#include <string>

#include "models/onnx_reader.h"

namespace lenslet {

/// Every node of `model`'s graph, branches and functions included, that calls one of its functions becomes the
/// function's nodes, under names behind the call's ("block/Conv_3"), which `names` keeps: it and `model.functions` must
/// outlive the graph. Branches must have been read (subgraphs.h). Error(invalid_model) for functions that call
/// themselves and for calls with too many inputs or outputs, Error(limit) for more than limits.h allows when all is in
/// place.
void inline_functions(OnnxModel& model, std::deque<std::string>& names);

}  // namespace lenslet
