// Every published limit (docs/limits.md), just inside and just outside.

#include "models/limits.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lenslet/model.h"
#include "lenslet/tensor_file.h"
#include "models/load_onnx.h"
#include "models/names.h"
#include "tests/expect_error.h"
#include "tests/models/onnx_writer.h"
#include "tests/models/temp_dir.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

Graph load(const ModelText& model) {
  const std::string data = model.bytes();
  return load_onnx(bytes_of(data), nullptr, {}, "test");
}

// A file of that size that uses no space on the disk.
std::filesystem::path sparse_file(const TempDir& folder, const std::string& name, std::uint64_t bytes) {
  const auto path = folder.write(name, "");
  std::filesystem::resize_file(path, bytes);
  return path;
}

// relu -> relu -> ... `count` times.
ModelText chain(std::size_t count) {
  ModelText model = relu_model();
  model.nodes.clear();
  for (std::size_t i = 0; i < count; ++i)
    model.nodes.push_back(
        node("Relu", {i == 0 ? "x" : fmt::format("v{}", i - 1)}, {i + 1 == count ? "y" : fmt::format("v{}", i)}));
  return model;
}

ModelText with_attribute(int field, std::size_t elems) {
  ModelText model = relu_model();
  model.nodes = {node("Relu", {"x"}, {"y"}, "relu", [&](pbf_writer& n) {
    attribute(n, "list", 0, [&](pbf_writer& a) {
      if (field == 8) {
        const std::vector<std::int64_t> list(elems, 1);
        a.add_packed_int64(8, list.begin(), list.end());
      } else if (field == 7) {
        const std::vector<float> list(elems, 1);
        a.add_packed_float(7, list.begin(), list.end());
      } else {
        for (std::size_t i = 0; i < elems; ++i) a.add_bytes(9, "");
      }
    });
  })};
  return model;
}

}  // namespace

TEST_CASE("limits/file_sizes") {
  const TempDir folder;
  CHECK_ERROR(Model::load(sparse_file(folder, "big.onnx", limits::model_file_bytes + 1)), limit, "at most 2147483647");
  CHECK_ERROR(read_npy(sparse_file(folder, "big.npy", limits::tensor_file_bytes + 1)), limit, "big.npy");
  CHECK_ERROR(read_tensor_pb(sparse_file(folder, "big.pb", limits::tensor_file_bytes + 1)), limit, "big.pb");
}

TEST_CASE("limits/bytes_of_a_model") {
  constexpr std::size_t most = limits::model_file_bytes;
  // Untouched pages use no memory.
  void* const memory = ::mmap(nullptr, most + 1, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  const std::span<const std::byte> bytes(static_cast<const std::byte*>(memory), most + 1);
  CHECK_ERROR(Model::load_bytes(bytes.first(most)), invalid_model, "impossible field tag");
  CHECK_ERROR(Model::load_bytes(bytes), limit, "the model has 2147483648 bytes; at most 2147483647 are allowed");
  ::munmap(memory, most + 1);
}

TEST_CASE("limits/not_a_regular_file") {
  const TempDir folder;
  REQUIRE(::mkfifo((folder / "fifo.onnx").c_str(), 0600) == 0);
  CHECK_ERROR(Model::load(folder / "fifo.onnx"), io, "not a regular file");
  CHECK_ERROR(Model::load(folder.path()), io, "folder");
  CHECK_ERROR(Model::load(folder / "missing.onnx"), io, "cannot be opened");
}

TEST_CASE("limits/nodes") {
  CHECK(load(chain(limits::nodes)).nodes.size() == limits::nodes);
  CHECK_ERROR(load(chain(limits::nodes + 1)), limit, "nodes");
  ModelText model = relu_model();
  for (const std::size_t more : {0U, 1U}) {
    const std::vector<std::string> nodes(limits::nodes + more, node("Relu", {"a"}, {"b"}));
    model.functions = {function("acme", "F", {"a"}, {"b"}, nodes)};
    if (more == 0)
      CHECK_NOTHROW(load(model));
    else
      CHECK_ERROR(load(model), limit, "nodes of functions");
  }
}

TEST_CASE("limits/values_and_references") {
  ModelText model = relu_model();
  model.initializers.assign(limits::values, tensor("w", f32, {}));
  CHECK_ERROR(load(model), limit, "values");
  model.initializers.resize(limits::values - 2);
  CHECK_ERROR(load(model), limit, "values");
  model.initializers.resize(limits::values - 3);                             // plus an input, an output, and a node's
  CHECK(error_of([&] { load(model); }).kind() == ErrorKind::invalid_model);  // many with one name
  const std::string sparse = message([](pbf_writer& writer) {
    pbf_writer graph(writer, 7);
    for (std::size_t i = 0; i <= limits::values; ++i) graph.add_message(15, std::string());
  });
  CHECK_ERROR(Model::load_bytes(bytes_of(sparse)), limit, "values");
  model = relu_model();
  model.nodes = {node("Concat", std::vector<std::string>(limits::values, "x"), {"y"}, "c",
                      [](pbf_writer& n) { attribute(n, "axis", 2, [](pbf_writer& a) { a.add_int64(3, 0); }); })};
  CHECK_NOTHROW(load(model));
  model.nodes = {node("Concat", std::vector<std::string>(limits::values + 1, "x"), {"y"}, "c")};
  CHECK_ERROR(load(model), limit, "node inputs");
}

// Values with a joint limit count wherever they stand, each up to the limit.
TEST_CASE("limits/everything_that_is_counted") {
  const auto many = [](pbf_writer& writer, protozero::pbf_tag_type field, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) writer.add_bytes(field, "");
  };
  const auto load_text = [](const std::string& text) { return load_onnx(bytes_of(text), nullptr, {}, "test"); };
  struct Row {
    std::uint32_t outer, inner;  ///< field of the model or the graph (as a message of field 7), and of its content
    bool graph;
    const char* words;
  };
  for (const Row& row : {Row{25, 0, false, "functions"}, Row{25, 4, false, "values"}, Row{25, 5, false, "values"},
                         Row{25, 11, false, "attributes"}, Row{5, 0, true, "values"}, Row{11, 0, true, "values"},
                         Row{12, 0, true, "values"}, Row{15, 0, true, "values"}, Row{1, 1, true, "node inputs"},
                         Row{1, 2, true, "values"}}) {
    CAPTURE(row.outer);
    CAPTURE(row.inner);
    for (const std::size_t more : {0U, 1U}) {
      const std::size_t count = limits::values + more;
      const std::string text = message([&](pbf_writer& model) {
        const auto fill = [&](pbf_writer& at) {
          if (row.inner == 0) return many(at, row.outer, count);
          pbf_writer inner(at, row.outer);
          many(inner, row.inner, count);
        };
        if (!row.graph) return fill(model);
        pbf_writer graph(model, 7);
        fill(graph);
      });
      if (more == 1)
        CHECK_ERROR(load_text(text), limit, fmt::format("more than {} {}", limits::values, row.words));
      else
        CHECK(error_of([&] { load_text(text); }).kind() != ErrorKind::limit);
    }
  }
}

TEST_CASE("limits/names") {
  ModelText model = relu_model();
  model.nodes = {node("Relu", {"x"}, {"y"}, std::string(limits::name_bytes, 'n'))};
  CHECK_NOTHROW(load(model));
  model.nodes = {node("Relu", {"x"}, {"y"}, std::string(limits::name_bytes + 1, 'n'))};
  CHECK_ERROR(load(model), limit, "4097 bytes");
}

TEST_CASE("limits/attributes") {
  for (const int field : {7, 8, 9}) {
    CAPTURE(field);
    // Within the limit the operator refuses the attribute.
    CHECK_ERROR(load(with_attribute(field, limits::attribute_elems)), unsupported, "'list'");
    CHECK_ERROR(load(with_attribute(field, limits::attribute_elems + 1)), limit, "65536 elements");
  }
  const auto many = [](std::size_t count) {
    ModelText model = relu_model();
    model.nodes = {node("Relu", {"x"}, {"y"}, "relu", [&](pbf_writer& n) {
      for (std::size_t i = 0; i < count; ++i)
        attribute(n, fmt::format("a{}", i), 2, [](pbf_writer& a) { a.add_int64(3, 1); });
    })};
    return load(model);
  };
  CHECK_ERROR(many(limits::attributes_per_node), unsupported, "'a0'");
  CHECK_ERROR(many(limits::attributes_per_node + 1), limit, "128 attributes");
  for (const std::size_t extra : {0U, 1U}) {  // of all nodes together
    ModelText model = relu_model();
    const auto full = node("Relu", {"x"}, {}, "relu", [&](pbf_writer& n) {
      for (int i = 0; i < 125; ++i) attribute(n, "a", 2, [](pbf_writer& a) { a.add_int64(3, 1); });
    });
    model.nodes.assign(limits::values / 125 + extra, full);
    CHECK(error_of([&] { load(model); }).kind() == (extra == 0 ? ErrorKind::invalid_model : ErrorKind::limit));
  }
  const auto text = [](std::size_t bytes) {
    ModelText model = relu_model();
    model.nodes = {node("Relu", {"x"}, {"y"}, "relu", [&](pbf_writer& n) {
      attribute(n, "text", 3, [&](pbf_writer& a) { a.add_bytes(4, std::string(bytes, 't')); });
    })};
    return load(model);
  };
  CHECK_ERROR(text(limits::attribute_text_bytes), unsupported, "'text'");
  CHECK_ERROR(text(limits::attribute_text_bytes + 1), limit, "text of more than");
}

TEST_CASE("limits/tensors") {
  const auto weight = [](const std::vector<std::int64_t>& dims) {
    ModelText model = relu_model();
    model.nodes = {node("Add", {"x", "w"}, {"y"}, "add")};
    model.initializers = {tensor("w", f32, dims)};
    return load(model);
  };
  CHECK_ERROR(weight({limits::tensor_elems + 1}), limit, "initializer 'w'");
  CHECK_ERROR(weight({1LL << 40, 3, 3, 3}), limit, "initializer 'w'");
  CHECK_ERROR(weight({1LL << 62, 1LL << 62, 4}), limit, "initializer 'w'");
  // The largest allowed, but without data: refused for that, and nothing is allocated.
  CHECK_ERROR(weight({limits::tensor_elems}), invalid_model, "its data has 0");
  CHECK_ERROR(weight(std::vector<std::int64_t>(limits::rank, 1)), invalid_model, "its data has 0");
  CHECK_ERROR(weight(std::vector<std::int64_t>(limits::rank + 1, 1)), limit, "rank above 8");
  CHECK_ERROR(weight(std::vector<std::int64_t>(100'000, 1)), limit, "rank above 8");
  ModelText model = relu_model();
  model.inputs = {port("x", f32, std::vector<std::int64_t>(limits::rank + 1, 1))};
  CHECK_ERROR(load(model), limit, "rank above 8");
}

TEST_CASE("limits/inputs_that_no_memory_holds") {
  constexpr std::int64_t huge = std::int64_t{1} << 62;
  // The last one is empty, but its strides would overflow.
  for (const auto& dims : std::vector<std::vector<std::int64_t>>{{huge}, {1 << 30, 1 << 30}, {0, huge, huge}}) {
    ModelText model = relu_model();
    model.inputs = {port("x", f32, dims)};
    model.outputs = {port("y", f32, dims)};
    const std::string data = model.bytes();
    CHECK_ERROR(Model::load_bytes(bytes_of(data)), limit, "input x");
  }
}

// Each node is looked up among the functions; a linear search took minutes for a file of a few megabytes.
TEST_CASE("limits/many_functions_beside_many_nodes") {
  ModelText model = chain(limits::nodes);
  for (int i = 0; i < 50'000; ++i) model.functions.push_back(function("com.acme", fmt::format("f{}", i), {}, {}, {}));
  CHECK(load(model).nodes.size() == limits::nodes);
  model.functions.push_back(function("", "Relu", {"a"}, {"b"}, {node("Neg", {"a"}, {"c"}), node("Abs", {"c"}, {"b"})}));
  CHECK_ERROR(load(model), limit, "nodes with functions in place");
}

TEST_CASE("limits/functions_that_call_functions") {
  const auto called = [](pbf_writer& writer) { writer.add_string(7, "acme"); };
  for (const int more : {0, 1}) {
    ModelText model = relu_model();
    model.opsets.emplace_back("acme", 1);
    const int deep = limits::function_depth + more;
    for (int i = 1; i < deep; ++i)
      model.functions.push_back(function("acme", fmt::format("F{}", i), {"a"}, {"b"},
                                         {node(fmt::format("F{}", i + 1), {"a"}, {"b"}, "n", called)}));
    model.functions.push_back(function("acme", fmt::format("F{}", deep), {"a"}, {"b"}, {node("Neg", {"a"}, {"b"})}));
    model.nodes = {node("F1", {"x"}, {"y"}, "call", called)};
    if (more == 0)
      CHECK(load(model).nodes.size() == 1);
    else
      CHECK_ERROR(load(model), invalid_model, "functions that call functions, 64 deep");
  }
}

TEST_CASE("limits/branches_within_branches") {
  for (const int more : {0, 1}) {
    std::string inner = node("Neg", {"x"}, {"r"});
    for (int i = 0; i < limits::subgraph_depth + more; ++i)
      inner = node("If", {"c"}, {"r"}, "choice", [&](pbf_writer& writer) {
        for (const char* const name : {"then_branch", "else_branch"})
          attribute(writer, name, 5, [&](pbf_writer& value) {
            pbf_writer graph(value, 6);
            if (*name == 't') graph.add_message(1, inner);
            graph.add_message(12, message([&](pbf_writer& w) { w.add_string(1, *name == 't' ? "r" : "x"); }));
          });
      });
    ModelText model = relu_model();
    model.initializers = {raw_tensor<std::uint8_t>("c", boolean, {}, {1})};
    model.nodes = {inner, node("Relu", {"r"}, {"y"})};
    if (more == 0)
      CHECK(load(model).nodes.size() == 2);
    else
      CHECK_ERROR(load(model), limit, "branches more than 8 deep");
  }
}

// Each call adds 2^16: a node, its input and output, and three lists with their elements.
TEST_CASE("limits/elements_of_functions_in_place") {
  constexpr std::size_t reals = 20'000, texts = 5'000, integers = (1U << 16) - reals - texts - 6;
  const auto lists = [](pbf_writer& n) {
    attribute(n, "reals", 6, [](pbf_writer& a) {
      const std::vector<float> list(reals, 1);
      a.add_packed_float(7, list.begin(), list.end());
    });
    attribute(n, "texts", 8, [](pbf_writer& a) {
      for (std::size_t i = 0; i < texts; ++i) a.add_bytes(9, "");
    });
    attribute(n, "integers", 7, [](pbf_writer& a) {
      const std::vector<std::int64_t> list(integers, 1);
      a.add_packed_int64(8, list.begin(), list.end());
    });
  };
  ModelText model = relu_model();
  model.opsets.emplace_back("acme", 1);
  model.functions = {function("acme", "Full", {"a"}, {"b"}, {node("None", {"a"}, {"b"}, "n", lists)}),
                     function("acme", "Empty", {}, {}, {node("None", {}, {})})};
  const auto called = [](pbf_writer& writer) { writer.add_string(7, "acme"); };
  model.outputs = model.inputs;
  model.nodes.assign(limits::inlined_elems >> 16U, node("Full", {"x"}, {}, "", called));
  const Error inside = error_of([&] { load(model); });  // the operator is refused
  CHECK(inside.kind() == ErrorKind::unsupported);
  CHECK(contains(inside.what(), "256 reasons (None x256)"));
  model.nodes.push_back(node("Empty", {}, {}, "", called));
  CHECK_ERROR(load(model), limit, "more than 16777216 values and attributes with functions in place");
}

TEST_CASE("limits/names_of_functions_in_place") {
  const auto named = [](std::size_t bytes) {
    ModelText model = relu_model();
    model.opsets.emplace_back("acme", 1);
    model.functions = {function("acme", "F", {"a"}, {"b"}, {node("Neg", {"a"}, {"b"}, std::string(bytes - 5, 'n'))})};
    model.nodes = {node("F", {"x"}, {"y"}, "call", [](pbf_writer& writer) { writer.add_string(7, "acme"); })};
    return load(model).nodes.at(0).name.size();
  };
  CHECK(named(limits::name_bytes) == limits::name_bytes);
  CHECK_ERROR(named(limits::name_bytes + 1), limit, "names of more than 4096 bytes");
}

TEST_CASE("limits/imports_and_external_entries") {
  ModelText model = relu_model();
  for (std::size_t i = 0; i < limits::opset_imports; ++i) model.opsets.emplace_back(fmt::format("d{}", i), 1);
  CHECK_ERROR(load(model), limit, "opset imports");
  model.opsets.pop_back();
  CHECK_NOTHROW(load(model));
  const auto entries = [](std::size_t count, const std::string& location) {
    ModelText text = relu_model();
    text.nodes = {node("Add", {"x", "w"}, {"y"}, "add")};
    text.initializers = {tensor("w", f32, {1}, [&](pbf_writer& writer) {
      for (std::size_t i = 0; i < count; ++i)
        writer.add_message(13, message([&](pbf_writer& entry) {
                             entry.add_string(1, i == 0 ? "location" : fmt::format("k{}", i));
                             entry.add_string(2, location);
                           }));
      writer.add_enum(14, 1);
    })};
    return load(text);
  };
  CHECK_ERROR(entries(limits::external_entries, "w"), io, "the model has no folder");
  CHECK_ERROR(entries(limits::external_entries + 1, "w"), limit, "external_data entries");
  CHECK_ERROR(entries(1, std::string(limits::external_location_bytes, 'w')), io, "no folder");
  CHECK_ERROR(entries(1, std::string(limits::external_location_bytes + 1, 'w')), limit, "1025 bytes");
}
