#pragma once
// Writes small ONNX files for tests field by field, valid or not.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <protozero/pbf_writer.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lenslet::test {

using protozero::pbf_writer;

inline std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

/// ONNX's numbers of element types.
enum : int { f32 = 1, u8 = 2, i8 = 3, u16 = 4, i16 = 5, i32 = 6, i64 = 7, text = 8, boolean = 9, f16 = 10, f64 = 11 };
inline constexpr int u32 = 12, bf16 = 16;
inline constexpr int f8e4m3fn = 17, f8e5m2 = 19, u4 = 21, i4 = 22, f4e2m1 = 23, f8e8m0 = 24, u2 = 25, i2 = 26;

/// The bytes of one message, written by `fill`.
inline std::string message(const std::function<void(pbf_writer&)>& fill) {
  std::string data;
  pbf_writer writer(data);
  fill(writer);
  return data;
}

/// A ValueInfoProto. A dimension of -1 is free and called `free`.
inline std::string port(std::string_view name, int type, const std::vector<std::int64_t>& dims,
                        const std::string& free = "N") {
  return message([&](pbf_writer& info) {
    info.add_string(1, name.data(), name.size());
    pbf_writer type_proto(info, 2);
    pbf_writer tensor(type_proto, 1);
    tensor.add_int32(1, type);
    pbf_writer shape(tensor, 2);
    for (const std::int64_t dim : dims) {
      pbf_writer dimension(shape, 1);
      if (dim >= 0)
        dimension.add_int64(1, dim);
      else
        dimension.add_string(2, free);
    }
  });
}

/// A TensorProto; `payload` adds the data.
inline std::string tensor(std::string_view name, int type, const std::vector<std::int64_t>& dims,
                          const std::function<void(pbf_writer&)>& payload = {}) {
  return message([&](pbf_writer& writer) {
    writer.add_packed_int64(1, dims.begin(), dims.end());
    writer.add_int32(2, type);
    writer.add_string(8, name.data(), name.size());
    if (payload) payload(writer);
  });
}

/// With raw_data: the bytes of `values`.
template <typename T>
std::string raw_tensor(std::string_view name, int type, const std::vector<std::int64_t>& dims,
                       const std::vector<T>& values) {
  return tensor(name, type, dims, [&](pbf_writer& writer) {
    writer.add_bytes(9, reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  });
}

/// A NodeProto; `more` adds attributes and other fields.
inline std::string node(std::string_view op, const std::vector<std::string>& inputs,
                        const std::vector<std::string>& outputs, std::string_view name = {},
                        const std::function<void(pbf_writer&)>& more = {}) {
  return message([&](pbf_writer& writer) {
    for (const auto& input : inputs) writer.add_string(1, input);
    for (const auto& output : outputs) writer.add_string(2, output);
    if (!name.empty()) writer.add_string(3, name.data(), name.size());
    writer.add_string(4, op.data(), op.size());
    if (more) more(writer);
  });
}

/// An AttributeProto field of a NodeProto: its name and declared type (0: none); `value` adds the rest.
inline void attribute(pbf_writer& node, std::string_view name, int type,
                      const std::function<void(pbf_writer&)>& value) {
  pbf_writer writer(node, 5);
  writer.add_string(1, name.data(), name.size());
  if (type != 0) writer.add_enum(20, type);
  value(writer);
}

/// A FunctionProto of opset 13; `more` adds to it.
inline std::string function(std::string_view domain, std::string_view name, const std::vector<std::string>& inputs,
                            const std::vector<std::string>& outputs, const std::vector<std::string>& nodes,
                            const std::function<void(pbf_writer&)>& more = {}) {
  return message([&](pbf_writer& writer) {
    writer.add_string(1, name.data(), name.size());
    for (const auto& input : inputs) writer.add_string(4, input);
    for (const auto& output : outputs) writer.add_string(5, output);
    for (const auto& part : nodes) writer.add_message(7, part);
    {
      pbf_writer import(writer, 9);
      import.add_string(1, "");
      import.add_int64(2, 13);
    }
    writer.add_string(10, domain.data(), domain.size());
    if (more) more(writer);
  });
}

/// The parts of a model, joined by bytes(). Each string is a complete message.
struct ModelText {
  std::int64_t ir_version = 8;
  std::vector<std::pair<std::string, std::int64_t>> opsets{{"", 13}};
  std::vector<std::string> nodes, initializers, inputs, outputs;
  std::vector<std::string> functions;
  std::string more;  ///< appended to the model

  std::string bytes() const {
    return message([&](pbf_writer& model) {
             if (ir_version != 0) model.add_int64(1, ir_version);
             {
               pbf_writer graph(model, 7);
               for (const auto& part : nodes) graph.add_message(1, part);
               graph.add_string(2, "test");
               for (const auto& part : initializers) graph.add_message(5, part);
               for (const auto& part : inputs) graph.add_message(11, part);
               for (const auto& part : outputs) graph.add_message(12, part);
             }
             for (const auto& [domain, version] : opsets) {
               pbf_writer import(model, 8);
               import.add_string(1, domain);
               import.add_int64(2, version);
             }
             for (const auto& part : functions) model.add_message(25, part);
           }) +
           more;
  }
};

/// x -> Relu -> y, [2,3]
inline ModelText relu_model() {
  ModelText model;
  model.nodes = {node("Relu", {"x"}, {"y"}, "relu")};
  model.inputs = {port("x", f32, {2, 3})};
  model.outputs = {port("y", f32, {2, 3})};
  return model;
}

}  // namespace lenslet::test
