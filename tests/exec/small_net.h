#pragma once
// A small residual network built in code, for the executor's tests.

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "lenslet/error.h"
#include "lenslet/model.h"
#include "runtime/graph/graph.h"
#include "tests/expect_error.h"

namespace lenslet::test {

/// Adds a node from the op table (opset 13) and returns its first output.
ValueId add_node(Graph& graph, const std::string& op, std::vector<ValueId> inputs,
                 const AttributeList& attributes = {});
ValueId add_node(Graph& graph, std::shared_ptr<const Op> op, const std::string& name, std::vector<ValueId> inputs);

/// A constant of pseudo-random values in [-scale, scale).
ValueId add_weights(Graph& graph, const std::string& name, Shape shape, float scale, std::uint64_t seed);

/// Declares "x" with a free batch: [N, dims...].
ValueId add_input(Graph& graph, std::initializer_list<std::int64_t> dims);
/// Any input; dimensions below 0 are free and have no name.
ValueId add_port(Graph& graph, const std::string& name, DType dtype, std::vector<std::int64_t> dims);
void add_output(Graph& graph, ValueId value);

/// x[N,3,17,19] -> Conv 3x3 s2 -> Relu -> Conv 3x3 -> Add -> Relu -> GlobalAveragePool -> Flatten -> Gemm -> [N,5]
Graph small_net();

/// x[N,5,421,31]: blocks of 1x1, depthwise, 1x1; the first has a residual that it may overwrite. 6.7 MB between its
/// steps exceed any L2, but every L2 holds some rows of 16 KB.
Graph inverted_residuals();

/// Outputs that need no kernel, and one that does: x[N,2,3,5] itself, Flatten(x), the constant c = [1,2,3], Relu(x).
Graph ports_net();
/// Nothing to compute and no bytes: Flatten(x[N,0,3]).
Graph renaming_net();

/// For the CPU, whatever devices the machine has.
PlanOptions on_cpu(std::int64_t batch = 1, int threads = 0);

/// Pseudo-random values in [-1, 1).
Tensor random_tensor(Shape shape, std::uint64_t seed);

}  // namespace lenslet::test
