#include "check/layer_model.h"

#include <algorithm>
#include <protozero/pbf_writer.hpp>

#include "lenslet/error.h"
#include "oracle/families.h"

namespace lenslet::check {

namespace {

using protozero::pbf_writer;

// TensorProto.DataType, whose numbers end with int2.
int number_of(DType dtype) {
  for (int number = 1; number <= 26; ++number) {
    if (number == 8 || number == 14 || number == 15) continue;  // strings and complex numbers
    if (oracle::dtype_of_number(number) == dtype) return number;
  }
  throw Error(ErrorKind::unsupported, "a file has no elements of " + std::string(to_string(dtype)));
}

// Files pack elements of fewer than 8 bits, the first in the low ones.
std::string raw_bytes(const Tensor& tensor) {
  const Tensor plain = tensor.to_format(formats::nchw);
  const auto* bytes = static_cast<const unsigned char*>(plain.data());
  const DType dtype = tensor.dtype();
  const bool two = dtype == DType::i2 || dtype == DType::u2;
  if (!two && dtype != DType::i4 && dtype != DType::u4 && dtype != DType::f4e2m1)
    return {reinterpret_cast<const char*>(bytes), plain.bytes()};
  const unsigned bits = two ? 2 : 4, in_a_byte = 8 / bits, mask = (1U << bits) - 1;
  std::string packed((plain.bytes() + in_a_byte - 1) / in_a_byte, '\0');
  for (std::size_t i = 0; i < plain.bytes(); ++i) {
    const unsigned shifted = (bytes[i] & mask) << (bits * static_cast<unsigned>(i % in_a_byte));
    packed[i / in_a_byte] = static_cast<char>(static_cast<unsigned char>(packed[i / in_a_byte]) | shifted);
  }
  return packed;
}

void add_tensor(pbf_writer& parent, protozero::pbf_tag_type field, const std::string& name, const Tensor& tensor) {
  pbf_writer writer(parent, field);
  const auto dims = tensor.shape().dims();
  writer.add_packed_int64(1, dims.begin(), dims.end());
  writer.add_int32(2, number_of(tensor.dtype()));
  writer.add_string(8, name);
  writer.add_bytes(9, raw_bytes(tensor));
}

// The fields of an AttributeProto, by what they hold.
struct AttributeWriter {
  pbf_writer& writer;
  void operator()(std::int64_t value) const {
    writer.add_enum(20, 2);
    writer.add_int64(3, value);
  }
  void operator()(double value) const {
    writer.add_enum(20, 1);
    writer.add_float(2, static_cast<float>(value));
  }
  void operator()(const std::string& value) const {
    writer.add_enum(20, 3);
    writer.add_bytes(4, value);
  }
  void operator()(const std::vector<std::int64_t>& values) const {
    writer.add_enum(20, 7);
    for (const std::int64_t value : values) writer.add_int64(8, value);
  }
  void operator()(const std::vector<double>& values) const {
    writer.add_enum(20, 6);
    for (const double value : values) writer.add_float(7, static_cast<float>(value));
  }
  void operator()(const std::vector<std::string>& values) const {
    writer.add_enum(20, 8);
    for (const std::string& value : values) writer.add_bytes(9, value);
  }
  void operator()(const Tensor& value) const {
    writer.add_enum(20, 4);
    add_tensor(writer, 5, "", value);
  }
};

void add_opset(pbf_writer& model, const std::string& domain, std::int64_t version) {
  pbf_writer opset(model, 8);
  opset.add_string(1, domain);
  opset.add_int64(2, version);
}

}  // namespace

std::string layer_model(std::string_view op, const AttributeList& attributes, const std::vector<Tensor>& inputs,
                        const LayerOptions& options) {
  constexpr std::int64_t newest = 28;  // of ONNX's own operators; those of other domains have one version
  std::string data;
  pbf_writer model(data);
  model.add_int64(1, 8);
  const bool onnx = options.domain.empty() || options.domain == "ai.onnx";
  add_opset(model, "", onnx && options.opset > 0 ? options.opset : newest);
  if (!onnx) add_opset(model, options.domain, options.opset > 0 ? options.opset : 1);
  pbf_writer graph(model, 7);
  const auto name_of = [](std::string_view what, std::size_t i) { return std::string(what) + std::to_string(i); };
  {
    pbf_writer node(graph, 1);
    for (std::size_t i = 0; i < inputs.size(); ++i)
      node.add_string(1, inputs[i].empty() ? std::string() : name_of("input", i));
    for (std::size_t i = 0; i < options.outputs; ++i) node.add_string(2, name_of("output", i));
    node.add_string(3, op.data(), op.size());
    node.add_string(4, op.data(), op.size());
    for (const auto& [name, value] : attributes) {
      pbf_writer attribute(node, 5);
      attribute.add_string(1, name);
      std::visit(AttributeWriter{attribute}, value);
    }
    if (!onnx) node.add_string(7, options.domain);
  }
  graph.add_string(2, "layer");
  for (std::size_t i = options.run_inputs; i < inputs.size(); ++i)
    if (!inputs[i].empty()) add_tensor(graph, 5, name_of("input", i), inputs[i]);
  for (std::size_t i = 0; i < std::min(options.run_inputs, inputs.size()); ++i) {
    if (inputs[i].empty()) continue;
    pbf_writer port(graph, 11);
    port.add_string(1, name_of("input", i));
    pbf_writer type(port, 2);
    pbf_writer tensor(type, 1);
    tensor.add_int32(1, number_of(inputs[i].dtype()));
    pbf_writer shape(tensor, 2);
    for (const std::int64_t dim : inputs[i].shape().dims()) {
      pbf_writer dimension(shape, 1);
      dimension.add_int64(1, dim);
    }
  }
  for (std::size_t i = 0; i < options.outputs; ++i) {
    pbf_writer port(graph, 12);
    port.add_string(1, name_of("output", i));
  }
  graph.commit();
  return data;
}

}  // namespace lenslet::check
