#include "models/onnx_reader.h"

#include <fmt/format.h>

#include <cstring>

#include "lenslet/error.h"
#include "models/limits.h"
#include "models/names.h"
#include "models/wire.h"

namespace lenslet {

namespace {

using protozero::pbf_wire_type;

/// Takes messages apart and counts what it has made, so that small files cannot grow into large structs.
class Reader {
 public:
  OnnxModel model(WireMessage in);
  OnnxGraph graph(WireMessage in);
  OnnxTensor tensor(WireMessage in, std::span<const std::byte> bytes);

 private:
  OnnxFunction function(WireMessage in);
  void opset_import(WireMessage& in, OnnxImports& imports);
  OnnxNode node(WireMessage in);
  OnnxAttribute attribute(WireMessage in);
  OnnxValueInfo value_info(WireMessage in);
  void type(WireMessage in, OnnxValueInfo& info);
  void shape(WireMessage in, OnnxValueInfo& info);
  OnnxDimension dimension(WireMessage in);

  OnnxTensor tensor_field(WireMessage& in) {
    const auto content = in.bytes();
    // Entered by hand, not through message(): the tensor keeps its bytes for decoding later.
    return tensor(WireMessage(content, "TensorProto"), content);
  }

  std::size_t values_ = 0, references_ = 0, attributes_ = 0, imports_ = 0, nodes_in_functions_ = 0;
};

void count(std::size_t& counter, std::size_t most, std::string_view what) {
  if (++counter > most) throw Error(ErrorKind::limit, fmt::format("more than {} {}", most, what));
}

void reject_second(bool there, std::string_view what) {
  if (there) throw Error(ErrorKind::invalid_model, fmt::format("not a readable ONNX file: a second {}", what));
}

void check_list(std::size_t elems) {
  if (elems > limits::attribute_elems)
    throw Error(ErrorKind::limit, fmt::format("an attribute list of more than {} elements", limits::attribute_elems));
}

OnnxModel Reader::model(WireMessage in) {
  OnnxModel model;
  std::size_t functions = 0;
  while (in.next()) {
    switch (in.field()) {
      case 1:
        model.ir_version = in.integer();
        break;
      case 7:
        reject_second(model.graph.has_value(), "graph");
        model.graph = graph(in.message("GraphProto"));
        break;
      case 8:
        opset_import(in, model.opset_imports);
        break;
      case 25:
        count(functions, limits::values, "functions");
        model.functions.push_back(function(in.message("FunctionProto")));
        break;
      default:
        in.skip();
    }
  }
  return model;
}

void Reader::opset_import(WireMessage& in, OnnxImports& imports) {
  count(imports_, limits::values, "opset imports");
  if (imports.size() == limits::opset_imports)
    throw Error(ErrorKind::limit, fmt::format("more than {} opset imports", limits::opset_imports));
  auto& [domain, version] = imports.emplace_back();
  auto import = in.message("OperatorSetIdProto");
  while (import.next()) {
    if (import.field() == 1)
      domain = checked_name(import.text(), "an opset import's domain");
    else if (import.field() == 2)
      version = import.integer();
    else
      import.skip();
  }
}

OnnxFunction Reader::function(WireMessage in) {
  OnnxFunction function;
  while (in.next()) {
    switch (in.field()) {
      case 1:
        function.name = checked_name(in.text(), "a function");
        break;
      case 4:
        count(values_, limits::values, "values");
        function.inputs.push_back(checked_name(in.text(), "a value"));
        break;
      case 5:
        count(values_, limits::values, "values");
        function.outputs.push_back(checked_name(in.text(), "a value"));
        break;
      case 7:
        count(nodes_in_functions_, limits::nodes, "nodes of functions");
        function.nodes.push_back(node(in.message("NodeProto")));
        break;
      case 9:
        opset_import(in, function.opset_imports);
        break;
      case 10:
        function.domain = checked_name(in.text(), "a function's domain");
        break;
      case 11:
        count(attributes_, limits::values, "attributes");
        function.defaults.push_back(attribute(in.message("AttributeProto")));
        break;
      case 13:
        function.overload = checked_name(in.text(), "a function's overload");
        break;
      default:
        in.skip();
    }
  }
  return function;
}

OnnxGraph Reader::graph(WireMessage in) {
  OnnxGraph graph;
  std::size_t nodes = 0;
  while (in.next()) {
    switch (in.field()) {
      case 1:
        count(nodes, limits::nodes, "nodes");
        graph.nodes.push_back(node(in.message("NodeProto")));
        break;
      case 2:
        graph.name = checked_name(in.text(), "the graph");
        break;
      case 5:
        count(values_, limits::values, "values");
        graph.initializers.push_back(tensor_field(in));
        break;
      case 11:
        count(values_, limits::values, "values");
        graph.inputs.push_back(value_info(in.message("ValueInfoProto")));
        break;
      case 12:
        count(values_, limits::values, "values");
        graph.outputs.push_back(value_info(in.message("ValueInfoProto")));
        break;
      case 15: {
        count(values_, limits::values, "values");
        auto& name = graph.sparse_initializers.emplace_back();
        auto sparse = in.message("SparseTensorProto");
        while (sparse.next()) {
          if (sparse.field() == 1)
            name = tensor_field(sparse).name;
          else
            sparse.skip();
        }
        break;
      }
      default:
        in.skip();
    }
  }
  return graph;
}

OnnxNode Reader::node(WireMessage in) {
  OnnxNode node;
  while (in.next()) {
    switch (in.field()) {
      case 1:
        count(references_, limits::values, "node inputs");
        node.inputs.push_back(checked_name(in.text(), "a value"));
        break;
      case 2:
        count(values_, limits::values, "values");
        node.outputs.push_back(checked_name(in.text(), "a value"));
        break;
      case 3:
        node.name = checked_name(in.text(), "a node");
        break;
      case 4:
        node.op_type = checked_name(in.text(), "an operator");
        break;
      case 5:
        count(attributes_, limits::values, "attributes");
        if (node.attributes.size() == limits::attributes_per_node)
          throw Error(ErrorKind::limit, fmt::format("more than {} attributes", limits::attributes_per_node),
                      fmt::format("node {}", node.name));
        node.attributes.push_back(attribute(in.message("AttributeProto")));
        break;
      case 7:
        node.domain = checked_name(in.text(), "a domain");
        break;
      case 8:
        node.overload = checked_name(in.text(), "an overload");
        break;
      default:
        in.skip();
    }
  }
  return node;
}

OnnxAttribute Reader::attribute(WireMessage in) {
  using Type = OnnxAttributeType;
  // Kinds that are refused by name later; their contents stay unread.
  static constexpr std::pair<std::uint32_t, Type> unread_kinds[] = {
      {10, Type::tensors},     {11, Type::graphs},        {14, Type::type_proto},
      {15, Type::type_protos}, {22, Type::sparse_tensor}, {23, Type::sparse_tensors}};
  OnnxAttribute attribute;
  const auto mark = [&attribute](Type type) { attribute.present |= 1U << static_cast<unsigned>(type); };
  while (in.next()) {
    switch (in.field()) {
      case 1:
        attribute.name = checked_name(in.text(), "an attribute");
        break;
      case 2:
        attribute.real = in.real();
        mark(Type::real);
        break;
      case 3:
        attribute.integer = in.integer();
        mark(Type::integer);
        break;
      case 4:
        attribute.text = in.text();
        if (attribute.text.size() > limits::attribute_text_bytes)
          throw Error(ErrorKind::limit,
                      fmt::format("an attribute text of more than {} bytes", limits::attribute_text_bytes));
        mark(Type::text);
        break;
      case 5:
        reject_second(attribute.tensor.has_value(), "tensor in an attribute");
        attribute.tensor = tensor_field(in);
        mark(Type::tensor);
        break;
      case 6:
        reject_second(!attribute.graph.empty(), "graph in an attribute");
        attribute.graph = in.bytes();
        mark(Type::graph);
        break;
      case 7: {
        const auto packed = in.numbers(pbf_wire_type::fixed32);
        if (packed.size() % sizeof(float) != 0)
          throw Error(ErrorKind::invalid_model, "not a readable ONNX file: floats cut off in AttributeProto");
        check_list(attribute.reals.size() + packed.size() / sizeof(float));
        for (std::size_t at = 0; at < packed.size(); at += sizeof(float)) {
          float value = 0;
          std::memcpy(&value, packed.data() + at, sizeof(float));
          attribute.reals.push_back(static_cast<double>(value));
        }
        mark(Type::reals);
        break;
      }
      case 8: {
        const auto packed = in.numbers(pbf_wire_type::varint);
        check_list(attribute.integers.size() + count_varints(packed));
        for_each_varint(packed, [&attribute](std::uint64_t value) {
          attribute.integers.push_back(static_cast<std::int64_t>(value));
        });
        mark(Type::integers);
        break;
      }
      case 9:
        check_list(attribute.texts.size() + 1);
        attribute.texts.push_back(in.text());
        mark(Type::texts);
        break;
      case 20:
        attribute.type = static_cast<Type>(in.integer());
        break;
      case 21:
        attribute.reference = checked_name(in.text(), "an attribute");
        break;
      default:
        for (const auto& [field, type] : unread_kinds)
          if (field == in.field()) mark(type);
        in.skip();
    }
  }
  return attribute;
}

OnnxTensor Reader::tensor(WireMessage in, std::span<const std::byte> bytes) {
  OnnxTensor tensor;
  tensor.message = bytes;
  while (in.next()) {
    switch (in.field()) {
      case 1:
        for_each_varint(in.numbers(pbf_wire_type::varint), [&tensor](std::uint64_t dim) {
          if (tensor.dims.size() <= static_cast<std::size_t>(limits::rank))
            tensor.dims.push_back(static_cast<std::int64_t>(dim));
        });
        break;
      case 2:
        tensor.type = static_cast<std::int32_t>(in.integer());
        break;
      case 3:
        tensor.segmented = true;
        in.skip();
        break;
      case 4:
      case 5:
      case 6:
      case 7:
      case 10:
      case 11:
        tensor.typed_fields |= 1U << in.field();
        in.skip();
        break;
      case 8:
        tensor.name = checked_name(in.text(), "a tensor");
        break;
      case 9:
        tensor.raw_data = in.bytes();
        tensor.has_raw_data = true;
        break;
      case 13: {
        if (tensor.external_data.size() == limits::external_entries)
          throw Error(ErrorKind::limit, fmt::format("more than {} external_data entries", limits::external_entries));
        auto& [key, value] = tensor.external_data.emplace_back();
        auto entry = in.message("StringStringEntryProto");
        while (entry.next()) {
          if (entry.field() == 1)
            key = checked_name(entry.text(), "an external_data key");
          else if (entry.field() == 2)
            value = checked_name(entry.text(), "an external_data value");
          else
            entry.skip();
        }
        break;
      }
      case 14:
        tensor.external = in.integer() != 0;
        break;
      default:
        in.skip();
    }
  }
  return tensor;
}

OnnxValueInfo Reader::value_info(WireMessage in) {
  OnnxValueInfo info;
  while (in.next()) {
    if (in.field() == 1) {
      info.name = checked_name(in.text(), "a value");
    } else if (in.field() == 2) {
      type(in.message("TypeProto"), info);
    } else {
      in.skip();
    }
  }
  return info;
}

void Reader::type(WireMessage in, OnnxValueInfo& info) {
  using Kind = OnnxValueInfo::Kind;
  while (in.next()) {
    if (in.field() == 6) {  // denotation: a remark
      in.skip();
      continue;
    }
    reject_second(info.kind != Kind::none, "type of a value");
    if (in.field() != 1) {
      info.kind = Kind::other;
      in.skip();
      continue;
    }
    info.kind = Kind::tensor;
    auto tensor = in.message("TypeProto.Tensor");
    while (tensor.next()) {
      if (tensor.field() == 1) {
        info.type = static_cast<std::int32_t>(tensor.integer());
      } else if (tensor.field() == 2) {
        reject_second(info.has_shape, "shape of a value");
        info.has_shape = true;
        shape(tensor.message("TensorShapeProto"), info);
      } else {
        tensor.skip();
      }
    }
  }
}

void Reader::shape(WireMessage in, OnnxValueInfo& info) {
  while (in.next()) {
    if (in.field() != 1) {
      in.skip();
      continue;
    }
    if (info.dims.size() == static_cast<std::size_t>(limits::rank))
      throw Error(ErrorKind::limit, fmt::format("a rank above {}", limits::rank), fmt::format("value {}", info.name));
    info.dims.push_back(dimension(in.message("TensorShapeProto.Dimension")));
  }
}

OnnxDimension Reader::dimension(WireMessage in) {
  OnnxDimension dim;
  while (in.next()) {
    if (in.field() == 1) {
      dim.value = in.integer();
      dim.name = {};
    } else if (in.field() == 2) {
      dim.name = checked_name(in.text(), "a dimension");
      dim.value.reset();
    } else {
      in.skip();
    }
  }
  return dim;
}

}  // namespace

OnnxGraph read_onnx_graph(std::span<const std::byte> bytes) { return Reader().graph(WireMessage(bytes, "GraphProto")); }

OnnxModel read_onnx_model(std::span<const std::byte> bytes) { return Reader().model(WireMessage(bytes, "ModelProto")); }

OnnxTensor read_onnx_tensor(std::span<const std::byte> bytes) {
  return Reader().tensor(WireMessage(bytes, "TensorProto"), bytes);
}

}  // namespace lenslet
