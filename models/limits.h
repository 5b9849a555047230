#pragma once
// Published limits on model files. docs/limits.md explains them; tests/models/limits_test.cpp tests each of them.

#include <cstddef>
#include <cstdint>

namespace lenslet::limits {

/// A protobuf message cannot be longer than 2 GiB - 1; larger networks keep their weights in external files.
inline constexpr std::uint64_t model_file_bytes = (std::uint64_t{1} << 31) - 1;
/// A .npy or TensorProto file read by read_npy / read_tensor_pb.
inline constexpr std::uint64_t tensor_file_bytes = std::uint64_t{1} << 32;
inline constexpr std::size_t npy_header_bytes = 65'536;
/// Elements of one tensor of a file; in bytes that is at most 32 GiB.
inline constexpr std::int64_t tensor_elems = std::int64_t{1} << 32;
/// Shape::max_rank.
inline constexpr int rank = 8;

inline constexpr std::size_t nodes = 100'000;
/// Initializers, graph inputs and node outputs together; the inputs of all nodes together have the same limit.
inline constexpr std::size_t values = 400'000;
/// Names of nodes, values, operators, domains, dimensions and attributes, in bytes.
inline constexpr std::size_t name_bytes = 4096;

/// Branches within branches, and functions that call functions.
inline constexpr int subgraph_depth = 8;
inline constexpr int function_depth = 64;
/// Inputs, outputs and attribute elements of all inlined function nodes.
inline constexpr std::size_t inlined_elems = std::size_t{1} << 24;

inline constexpr std::size_t attributes_per_node = 128;
/// Elements of an ints, floats or strings attribute.
inline constexpr std::size_t attribute_elems = 65'536;
inline constexpr std::size_t attribute_text_bytes = 1u << 20;

inline constexpr std::size_t opset_imports = 256;
inline constexpr std::size_t external_entries = 16;
inline constexpr std::size_t external_location_bytes = 1024;
/// One external file.
inline constexpr std::uint64_t external_file_bytes = std::uint64_t{1} << 38;
/// Different external files of one model.
inline constexpr std::size_t external_files = 4096;
/// Maximum bytes read from one external file, in multiples of its size, since tensors may overlap.
inline constexpr std::uint64_t external_reads = 4;

inline constexpr std::int64_t min_ir_version = 3;
inline constexpr std::int64_t max_ir_version = 14;
inline constexpr std::int64_t max_opset = 28;

}  // namespace lenslet::limits
