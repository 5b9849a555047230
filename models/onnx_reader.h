#pragma once
// An ONNX file as plain structs: the wire format taken apart, nothing interpreted. Everything is a view into the file's
// bytes, which must outlive the structs. Field numbers: models/onnx.proto.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace lenslet {

struct OnnxTensor {
  std::string_view name;
  std::vector<std::int64_t> dims;      ///< at most limits::rank + 1 are kept
  std::int32_t type = 0;               ///< TensorProto.DataType (ops/core/onnx_types.h); 0: undefined
  std::span<const std::byte> message;  ///< the whole TensorProto: typed data is decoded from it when wanted
  std::span<const std::byte> raw_data;
  bool has_raw_data = false;
  std::uint32_t typed_fields = 0;  ///< bit f: field f of the typed data fields (4, 5, 6, 7, 10, 11) is there
  bool segmented = false;
  bool external = false;                                                     ///< data_location EXTERNAL
  std::vector<std::pair<std::string_view, std::string_view>> external_data;  ///< key, value
};

/// AttributeProto.AttributeType
enum class OnnxAttributeType : std::int32_t {
  undefined = 0,
  real = 1,
  integer = 2,
  text = 3,
  tensor = 4,
  graph = 5,
  reals = 6,
  integers = 7,
  texts = 8,
  tensors = 9,
  graphs = 10,
  sparse_tensor = 11,
  sparse_tensors = 12,
  type_proto = 13,
  type_protos = 14,
};

struct OnnxGraph;

struct OnnxAttribute {
  std::string_view name;
  OnnxAttributeType type = OnnxAttributeType::undefined;  ///< as declared
  std::uint32_t present = 0;                              ///< bit t: a field of OnnxAttributeType t is there
  float real = 0;
  std::int64_t integer = 0;
  std::string_view text;
  std::optional<OnnxTensor> tensor;
  std::vector<double> reals;
  std::vector<std::int64_t> integers;
  std::vector<std::string_view> texts;
  std::string_view reference;                 ///< ref_attr_name
  std::span<const std::byte> graph;           ///< the whole GraphProto, unread
  std::shared_ptr<const OnnxGraph> subgraph;  ///< the same read, where subgraphs.h did
};

using OnnxImports = std::vector<std::pair<std::string_view, std::int64_t>>;  ///< domain, version

struct OnnxNode {
  std::string_view name, op_type, domain, overload;
  const OnnxImports* opset_imports = nullptr;  ///< of the function that it came from; null: the model's
  std::vector<std::string_view> inputs, outputs;
  std::vector<OnnxAttribute> attributes;
};

struct OnnxDimension {
  std::optional<std::int64_t> value;
  std::string_view name;
};

struct OnnxValueInfo {
  /// Which member of TypeProto's oneof is there. Others are sequences, maps, optionals and sparse tensors.
  enum class Kind { none, tensor, other };
  std::string_view name;
  Kind kind = Kind::none;
  std::int32_t type = 0;  ///< of a tensor's elements, as OnnxTensor::type
  bool has_shape = false;
  std::vector<OnnxDimension> dims;
};

struct OnnxGraph {
  std::string_view name;
  std::vector<OnnxNode> nodes;
  std::vector<OnnxTensor> initializers;
  std::vector<std::string_view> sparse_initializers;  ///< names only: refused
  std::vector<OnnxValueInfo> inputs, outputs;
};

struct OnnxFunction {
  std::string_view name, domain, overload;
  std::vector<std::string_view> inputs, outputs;
  std::vector<OnnxAttribute> defaults;  ///< of attributes that a call may leave out
  std::vector<OnnxNode> nodes;
  OnnxImports opset_imports;
};

struct OnnxModel {
  std::int64_t ir_version = 0;
  OnnxImports opset_imports;
  std::vector<OnnxFunction> functions;
  std::optional<OnnxGraph> graph;
};

/// Takes `bytes` apart. Error(invalid_model) for damage, Error(limit) for more than limits.h allows. Memory used stays
/// within a fixed multiple of the file's size.
OnnxModel read_onnx_model(std::span<const std::byte> bytes);
/// A GraphProto by itself (a branch of If). Errors as above.
OnnxGraph read_onnx_graph(std::span<const std::byte> bytes);
/// A TensorProto by itself (the .pb files of the ONNX backend tests).
OnnxTensor read_onnx_tensor(std::span<const std::byte> bytes);

}  // namespace lenslet
