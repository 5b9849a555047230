#pragma once
// A network on sparse values without convolutions, on any device: sites are sorted, pooled by a rulebook, made dense.

#include <cstddef>
#include <string>
#include <vector>

#include "lenslet/attributes.h"
#include "runtime/graph/graph.h"

namespace lenslet::test {

/// Appends a node of our domain with the given number of outputs, NAME:0 and following.
std::vector<ValueId> add_sparse(Graph& graph, const std::string& op, const std::string& name,
                                std::vector<ValueId> inputs, const AttributeList& attributes, std::size_t outputs);

/// One plan takes any number of sites and gives the CPU's bits.
void check_sites_of_each_run(const std::string& device);
/// 100 runs.
void check_sparse_bits_repeat(const std::string& device);
/// Invalid sites end the run with the CPU's message, and the runner still works.
void check_sparse_errors(const std::string& device);
/// `precision` stores values in 16 bits.
void check_sparse_halves(const std::string& device, const std::string& precision);

}  // namespace lenslet::test
