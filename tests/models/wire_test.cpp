// Hostile bytes: each must give an Error, never a huge allocation or a read beyond the end.

#include <doctest/doctest.h>

#include <algorithm>
#include <protozero/pbf_reader.hpp>
#include <random>

#include "models/load_onnx.h"
#include "models/names.h"
#include "models/onnx_reader.h"
#include "tests/expect_error.h"
#include "tests/models/onnx_writer.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

Graph load(const std::string& data) { return load_onnx(bytes_of(data), nullptr, {}, "test"); }

std::string chars(std::initializer_list<int> values) {
  std::string text;
  for (const int value : values) text += static_cast<char>(value);
  return text;
}

}  // namespace

TEST_CASE("wire/damage") {
  CHECK_ERROR(load(""), invalid_model, "empty");
  CHECK_ERROR(load("version https://git-lfs.github.com/spec/v1\n"), invalid_model, "Git LFS");
  CHECK_ERROR(load(chars({0xFF, 0xD8, 0xFF, 0xE0})), invalid_model, "ONNX");
  // A tag of eleven bytes, a tag beyond 32 bits, tag 0, and the wire types of groups.
  CHECK_ERROR(load(std::string(11, '\xFF')), invalid_model, "over-long field tag");
  CHECK_ERROR(load(chars({0x8A, 0x80, 0x80, 0x80, 0x10, 0x00})), invalid_model, "over-long field tag");
  CHECK_ERROR(load(chars({0x00, 0x01})), invalid_model, "impossible field tag");
  CHECK_ERROR(load(chars({0x0B, 0x0C})), invalid_model, "impossible field tag");
  CHECK_ERROR(load(chars({0xFF, 0xFF, 0xFF, 0xFF, 0x0F})), invalid_model, "impossible field tag");
  CHECK_ERROR(load(chars({0x80, 0x80, 0x80, 0x80, 0x10})), invalid_model, "over-long field tag");
  // Unknown fields, truncated.
  for (const auto& cut : {chars({0x10, 0x80}), chars({0x11, 1, 2, 3}), chars({0x15, 1, 2})})
    CHECK_ERROR(load(cut), invalid_model, "field 2 cut off in ModelProto");
  // Truncated in a tag, a number and a length; a length of 2^32 + 1 must not be read as 1.
  CHECK_ERROR(load(chars({0x88})), invalid_model, "cut off");
  CHECK_ERROR(load(chars({0x08})), invalid_model, "damaged number");
  CHECK_ERROR(load(chars({0x3A, 0x80})), invalid_model, "damaged length");
  CHECK_ERROR(load(chars({0x3A, 0x81, 0x80, 0x80, 0x80, 0x10, 0x00})), invalid_model, "claims 4294967297 bytes");
  CHECK_ERROR(load(chars({0x3A, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01})), invalid_model, "claims");
  // The graph as a number instead of a message.
  CHECK_ERROR(load(chars({0x38, 0x01})), invalid_model, "wire type");
}

TEST_CASE("wire/damaged_attributes") {
  const auto with = [](const std::string& attribute) {
    ModelText model = relu_model();
    model.nodes = {node("Relu", {"x"}, {"y"}, "relu", [&](pbf_writer& n) { n.add_message(5, attribute); })};
    return load(model.bytes());
  };
  const std::string tensor = chars({0x2A, 0}), graph = chars({0x32, 2, 0x12, 0});
  CHECK_ERROR(with(chars({0x15, 1, 2})), invalid_model, "field 2 cut off in AttributeProto");
  // A wrong wire type in place of a float, and others.
  CHECK_ERROR(with(chars({0x10, 1})), invalid_model, "field 2 of wire type 0 where 5 belongs in AttributeProto");
  CHECK_ERROR(with(chars({0x1D, 0, 0, 0, 0})), invalid_model, "field 3 of wire type 5 where 0 belongs");
  CHECK_ERROR(with(chars({0x3D, 0, 0, 0})), invalid_model, "field 7 cut off");
  CHECK_ERROR(with(chars({0x38, 1})), invalid_model, "field 7 of wire type 0 where 5 belongs");
  CHECK_ERROR(with(chars({0x45, 0, 0, 0, 0})), invalid_model, "field 8 of wire type 5 where 0 belongs");
  CHECK_ERROR(with(chars({0x3A, 3, 0, 0, 0})), invalid_model, "floats cut off");
  CHECK_ERROR(with(tensor + tensor), invalid_model, "a second tensor in an attribute");
  CHECK_ERROR(with(graph + graph), invalid_model, "a second graph in an attribute");
}

TEST_CASE("wire/files_that_are_mistaken_for_models_are_told_apart") {
  using namespace std::string_literals;
  struct Kind {
    std::string begin;
    const char* words;
  };
  const Kind kinds[] = {{"version https://git-lfs", "Git LFS"},
                        {"PK\x03\x04", "ZIP archive"},
                        {"\x80\x02", "Python pickle"},
                        {"\x89HDF\r\n", "HDF5"},
                        {"\x1c\0\0\0TFL3"s, "TensorFlow Lite"},
                        {"7767517", "ncnn"},
                        {"<?xml", "OpenVINO"},
                        {"\x93NUMPY", "NumPy array"},
                        {"\x10\0\0\0\0\0\0\0{\""s, "safetensors"}};
  for (const Kind& kind : kinds) {
    CHECK_ERROR(load(kind.begin), invalid_model, kind.words);
    CHECK_ERROR(load(kind.begin + " and more"), invalid_model, kind.words);
    for (const std::string& other : {" " + kind.begin, kind.begin.substr(0, kind.begin.size() - 1)})
      CHECK(error_of([&] { load(other); }).message().find(kind.words) == std::string::npos);
  }
}

TEST_CASE("wire/every_truncation_of_a_model_is_an_error") {
  ModelText model = relu_model();
  model.initializers = {raw_tensor<float>("w", f32, {2, 2}, {1, 2, 3, 4})};
  const std::string whole = model.bytes();
  CHECK(load(whole).nodes.size() == 1);
  for (std::size_t length = 0; length < whole.size(); ++length) {
    CAPTURE(length);
    // Truncated at a field's end, the rest may still be a model, but without opset imports: an Error as well.
    CHECK_ERROR(load(whole.substr(0, length)), invalid_model, "");
  }
}

TEST_CASE("wire/random_damage_is_an_error_or_a_graph") {
  ModelText text = relu_model();
  text.nodes.push_back(node("Constant", {}, {"c"}, "c", [](pbf_writer& writer) {
    attribute(writer, "value", 4, [](pbf_writer& value) {
      value.add_message(5, raw_tensor<std::int64_t>("", i64, {2}, {1, 2}));
    });
  }));
  const std::string whole = text.bytes();
  std::mt19937 random(20240611);
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string damaged = whole;
    for (unsigned change = 0; change <= random() % 3; ++change)
      damaged[random() % damaged.size()] = static_cast<char>(random());
    try {
      load(damaged).check();
    } catch (const Error& error) {
      CHECK(error.kind() != ErrorKind::internal);
      ++refused;
    }
  }
  CHECK(refused > 1000);
}

TEST_CASE("wire/doubled_parts_are_refused") {
  const std::string whole = relu_model().bytes();
  CHECK_ERROR(load(whole + whole), invalid_model, "second graph");
  const std::string shape = chars({0x12, 0}), tensor = message([](pbf_writer&type) {
                                                type.add_message(1, std::string(1, 0x08) + std::string(1, 0x01));
                                              });
  const auto with = [](const std::vector<std::string>& types) {
    ModelText model = relu_model();
    model.inputs = {message([&](pbf_writer& info) {
      info.add_string(1, "x");
      for (const std::string& type : types) info.add_message(2, type);
    })};
    return load(model.bytes());
  };
  const std::string sequence = chars({0x22, 0});
  CHECK_ERROR(with({tensor, tensor}), invalid_model, "a second type of a value");
  for (const std::string& type : {tensor + tensor, tensor + sequence, sequence + tensor})
    CHECK_ERROR(with({type}), invalid_model, "a second type of a value");
  CHECK_ERROR(with({message([&](pbf_writer& type) { type.add_message(1, shape + shape); })}), invalid_model,
              "a second shape of a value");
}

TEST_CASE("wire/the_last_of_a_dimensions_value_and_name_counts") {
  struct Row {
    bool name_last;
    std::int64_t value, dim;
    const char* name;
  };
  for (const Row& row : {Row{false, 7, 7, ""}, {true, 7, -1, "N"}, {false, -1, -1, ""}}) {
    ModelText model = relu_model();
    model.inputs = {message([&](pbf_writer& info) {
      info.add_string(1, "x");
      pbf_writer type(info, 2);
      pbf_writer tensor_type(type, 1);
      tensor_type.add_int32(1, f32);
      pbf_writer shape(tensor_type, 2);
      pbf_writer dimension(shape, 1);
      if (!row.name_last) dimension.add_string(2, "N");
      dimension.add_int64(1, row.value);
      if (row.name_last) dimension.add_string(2, "N");
    })};
    const PortInfo x = load(model.bytes()).input_ports.at(0);
    CHECK(x.dims == std::vector<std::int64_t>{row.dim});
    CHECK(x.dim_names.at(0) == row.name);
  }
}

TEST_CASE("wire/unknown_fields_are_skipped") {
  ModelText model = relu_model();
  model.more = message([](pbf_writer& writer) {
    writer.add_string(1000, "from the future");
    writer.add_fixed64(1001, 1);
    writer.add_fixed32(1002, 1);
    writer.add_uint64(1003, 1);
  });
  CHECK(load(model.bytes()).nodes.size() == 1);
}

namespace {

/// `text`, a message of that kind, with unknown fields inserted in it and in all nested messages, before and after.
std::string with_unknown_fields(const std::string& text, const std::string& kind) {
  struct Inner {
    const char* outer;
    std::uint32_t field;
    const char* kind;
  };
  static constexpr Inner inner[] = {
      {"model", 7, "graph"},   {"model", 8, "import"},     {"model", 25, "function"},     {"graph", 1, "node"},
      {"graph", 5, "tensor"},  {"graph", 11, "value"},     {"graph", 12, "value"},        {"graph", 15, "sparse"},
      {"sparse", 1, "tensor"}, {"node", 5, "attribute"},   {"attribute", 5, "tensor"},    {"attribute", 6, "graph"},
      {"value", 2, "type"},    {"type", 1, "tensor type"}, {"tensor type", 2, "shape"},   {"shape", 1, "dimension"},
      {"function", 7, "node"}, {"function", 9, "import"},  {"function", 11, "attribute"}, {"tensor", 13, "entry"}};
  const std::string unknown = message([&](pbf_writer& writer) {
    if (kind == "type") return writer.add_string(6, "IMAGE");  // anything else would say that it is another type
    writer.add_string(1000, "from the future");
    writer.add_fixed64(1001, 1);
    writer.add_fixed32(1002, 1);
    writer.add_uint64(1003, 1);
  });
  std::string made = unknown;
  pbf_writer writer(made);
  for (protozero::pbf_reader reader(text); reader.next();) {
    const auto row =
        std::ranges::find_if(inner, [&](const Inner& one) { return one.outer == kind && one.field == reader.tag(); });
    if (row != std::end(inner)) {
      writer.add_message(reader.tag(), with_unknown_fields(reader.get_string(), row->kind));
      continue;
    }
    switch (reader.wire_type()) {
      case protozero::pbf_wire_type::varint:
        writer.add_uint64(reader.tag(), reader.get_uint64());
        break;
      case protozero::pbf_wire_type::fixed32:
        writer.add_fixed32(reader.tag(), reader.get_fixed32());
        break;
      case protozero::pbf_wire_type::fixed64:
        writer.add_fixed64(reader.tag(), reader.get_fixed64());
        break;
      default:
        writer.add_string(reader.tag(), reader.get_string());
    }
  }
  return made + unknown;
}

}  // namespace

TEST_CASE("wire/unknown_fields_are_skipped_in_every_message") {
  ModelText model = relu_model();
  const auto value = [](pbf_writer& n) {
    attribute(n, "value", 4, [](pbf_writer& a) { a.add_message(5, raw_tensor<float>("", f32, {3}, {1, 2, 3})); });
  };
  const auto floats = [](pbf_writer& t) {
    const std::vector<float> list{4, 5, 6};
    t.add_packed_float(4, list.begin(), list.end());
  };
  model.inputs = {port("x", f32, {-1, 3})};
  model.outputs = {port("y", f32, {-1, 3})};
  model.nodes = {node("Constant", {}, {"c"}, "constant", value), node("Add", {"x", "c"}, {"s"}, "add"),
                 node("Mul", {"s", "w"}, {"m"}, "mul"),
                 node("Twice", {"m"}, {"y"}, "twice", [](pbf_writer& n) { n.add_string(7, "com.acme"); })};
  model.initializers = {tensor("w", f32, {3}, floats)};
  model.functions = {function("com.acme", "Twice", {"a"}, {"b"}, {node("Add", {"a", "a"}, {"b"})})};
  model.opsets.emplace_back("com.acme", 1);
  const std::string text = model.bytes();
  const Graph plain = load(text), more = load(with_unknown_fields(text, "model"));
  CHECK(more.dump() == plain.dump());
  CHECK(more.nodes.size() >= 3);
}

TEST_CASE("wire/deeply_nested_subgraphs_are_not_entered") {
  // Graphs in attributes of nodes of graphs ... 20000 deep: those of If are read to a small depth, others not at all.
  const auto nested = [](const std::string& op) {
    std::string inner;
    for (int depth = 0; depth < 20000; ++depth) {
      inner = message([&](pbf_writer& graph) {
        graph.add_message(1, node(op, {"x"}, {"z"}, "", [&](pbf_writer& writer) {
                            attribute(writer, "then_branch", 5,
                                      [&](pbf_writer& value) { value.add_message(6, inner); });
                          }));
      });
      if (inner.size() > 200'000) break;
    }
    ModelText model = relu_model();
    model.nodes.push_back(node(op, {"x"}, {"z"}, "branch", [&](pbf_writer& writer) {
      attribute(writer, "then_branch", 5, [&](pbf_writer& value) { value.add_message(6, inner); });
    }));
    return model.bytes();
  };
  CHECK_ERROR(load(nested("If")), limit, "branches more than 8 deep");
  CHECK_ERROR(load(nested("Loop")), unsupported, "node branch (Loop");
}

TEST_CASE("names/what_may_be_a_name") {
  CHECK(checked_name("conv1/Conv:0", "a node") == "conv1/Conv:0");
  CHECK(checked_name("\xE5\x90\x8D", "a node") == "\xE5\x90\x8D");
  CHECK_ERROR(checked_name("a\nb", "a node"), invalid_model, "control character");
  CHECK_ERROR(checked_name(std::string_view("a\0b", 3), "a node"), invalid_model, "control character");
  CHECK_ERROR(checked_name("\x7f", "a node"), invalid_model, "control character");
  // The first and last code of every length, and both sides of the ranges that are no characters.
  for (const char* good : {"\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80", "\xef\xbf\xbf",
                           "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf", " ", "~", ""})
    CHECK(checked_name(good, "a node") == good);
  CHECK_ERROR(checked_name("\x1f", "a node"), invalid_model, "control character");
  for (const char* bad : {"\xc1\xbf", "\xe0\x9f\xbf", "\xed\xbf\xbf", "\xf0\x8f\xbf\xbf", "\xf5\x80\x80\x80", "\xbf",
                          "\xc2", "\xf0\x90\x80", "\xc2 ", "\xc2\xc0", "\xff", "\xc0\x80", "\xed\xa0\x80",
                          "\xf4\x90\x80\x80", "\xe5\x90", "\x80", "\x81\x80\x80\x80", "\xf9\x80\x80\x80"})
    CHECK_ERROR(checked_name(bad, "a node"), invalid_model, "UTF-8");
}
