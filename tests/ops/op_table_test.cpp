// The table of operators: valid rows that agree with docs/ops.md.

#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "ops/core/kernel.h"
#include "ops/families.h"
#include "tests/ops/ops_doc.h"

namespace lenslet::test {
namespace {

struct Schema {
  std::int64_t since;
  int min_inputs, max_inputs, min_outputs, max_outputs;
};
using Schemas = std::map<std::string, std::vector<Schema>>;

Schemas read_schemas(const char* name) {
  Schemas schemas;
  std::ifstream file(std::string(LENSLET_SOURCE_DIR "/tests/ops/data/") + name);
  std::string line;
  std::getline(file, line);
  REQUIRE(line == "name,since,min_inputs,max_inputs,min_outputs,max_outputs");
  while (std::getline(file, line)) {
    std::replace(line.begin(), line.end(), ',', ' ');
    std::istringstream fields(line);
    std::string op;
    Schema schema{};
    fields >> op >> schema.since >> schema.min_inputs >> schema.max_inputs >> schema.min_outputs >> schema.max_outputs;
    schemas[op].push_back(schema);
  }
  return schemas;
}

/// Joins the counts of several versions.
template <typename Which>
Schema joined(const std::vector<Schema>& all, const Which& which) {
  Schema most{0, 99, 0, 99, 0};
  const auto larger = [](int a, int b) { return a == any_number || b == any_number ? any_number : std::max(a, b); };
  for (const Schema& schema : all) {
    if (!which(schema)) continue;
    most.min_inputs = std::min(most.min_inputs, schema.min_inputs);
    most.max_inputs = larger(most.max_inputs, schema.max_inputs);
    most.min_outputs = std::min(most.min_outputs, schema.min_outputs);
    most.max_outputs = larger(most.max_outputs, schema.max_outputs);
  }
  return most;
}

}  // namespace

TEST_CASE("op_table/rows") {
  std::set<std::pair<std::string_view, std::string_view>> seen;
  for (const OpRow& row : op_table()) {
    CAPTURE(std::string(row.name));
    CHECK(seen.insert({row.name, row.domain}).second);
    CHECK((row.parts.make != nullptr));
    CHECK(row.min_opset >= 1);
    CHECK(row.min_inputs >= 0);
    CHECK((row.max_inputs == -1 || row.max_inputs >= row.min_inputs));
    CHECK(row.min_outputs >= 1);
    CHECK((row.max_outputs == -1 || row.max_outputs >= row.min_outputs));
    CHECK((find_op(row.name, row.domain) == &row));
    CHECK(row.notes.find('|') == std::string_view::npos);
    if (row.domain.empty()) CHECK_FALSE(kernels_of(row.name, DeviceKind::cpu).empty());
  }
  CHECK((find_op("Identity", "") != nullptr));
  CHECK((find_op("Identity", "lenslet") == nullptr));
  CHECK((find_op("NoSuchOp", "") == nullptr));
  CHECK(kernels_of("NoSuchOp", DeviceKind::cpu).empty());
}

// As in onnx 1.23: data/onnx_operators.csv, a line for each operator and version, from get_all_schemas_with_history().
TEST_CASE("op_table/versions_and_numbers_of_inputs_and_outputs_are_those_of_onnx") {
  const Schemas schemas = read_schemas("onnx_operators.csv");
  for (const OpRow& row : op_table()) {
    if (!row.domain.empty()) continue;
    CAPTURE(std::string(row.name));
    REQUIRE_MESSAGE(schemas.contains(std::string(row.name)), "tests/ops/data/onnx_operators.csv has no line of it");
    const std::vector<Schema>& all = schemas.at(std::string(row.name));
    const auto is_read = [&](const Schema& schema) {
      return &schema == &all.back() || (&schema)[1].since > row.min_opset;  // a version that is read
    };
    const bool is_since = std::ranges::any_of(all, [&](const Schema& schema) { return schema.since == row.min_opset; });
    // Some exporters wrote these before they became operators.
    CHECK((is_since || row.name == "LayerNormalization" || row.name == "ThresholdedRelu"));
    const Schema most = joined(all, is_read);
    CHECK(row.min_inputs == most.min_inputs);
    CHECK(row.max_inputs == (row.name == "Einsum" ? 4 : most.max_inputs));
    CHECK(row.min_outputs == (row.name == "TopK" ? 1 : std::max(1, most.min_outputs)));
    CHECK(row.max_outputs == most.max_outputs);
  }
}

// Operators of ONNX Runtime 1.32: data/onnxruntime_operators.csv, from get_all_operator_schema().
TEST_CASE("op_table/what_is_read_as_other_operators_has_as_many_inputs_and_outputs_as_where_it_comes_from") {
  const Schemas onnx = read_schemas("onnx_operators.csv"), onnxruntime = read_schemas("onnxruntime_operators.csv");
  for (const OpRow& row : op_table()) {
    if (row.domain != "com.microsoft") continue;
    const Schema& only = onnxruntime.at(std::string(row.name)).front();
    CAPTURE(std::string(row.name));
    CHECK((row.min_inputs == only.min_inputs && row.max_inputs == only.max_inputs));
    CHECK((row.min_outputs == only.min_outputs && row.max_outputs == only.max_outputs));
  }
  int rows = 0;
  std::istringstream lines(expansion_table());  // "| Gemm before opset 7 | ai.onnx | Gemm |"
  for (std::string line; std::getline(lines, line);) {
    if (line.find("ai.onnx") == line.npos && line.find("com.microsoft") == line.npos) continue;
    CAPTURE(line);
    std::istringstream words(line);
    std::string name, word, opset;
    std::int64_t before = 1000;
    words >> word >> name >> word;
    if (word == "before") words >> opset >> before >> word;
    const std::string domain = line.find("com.microsoft") != line.npos ? "com.microsoft" : "";
    const ExpansionRow* const row = find_expansion(name, domain, before - 1);
    REQUIRE((row != nullptr && row->name == name));
    const bool of_onnx = domain.empty() && onnx.contains(name) && onnx.at(name).front().since < before;
    const std::vector<Schema>& all = (of_onnx ? onnx : onnxruntime).at(name);
    const Schema of = joined(all, [&](const Schema& schema) { return schema.since < before; });
    CHECK(row->min_inputs == (name == "QLinearConcat" ? 5 : of.min_inputs));  // at least a triple
    CHECK(row->max_inputs == of.max_inputs);
    CHECK(row->max_outputs == (name == "SimplifiedLayerNormalization" ? 1 : of.max_outputs));  // training has more
    // From a later version on it is read as itself.
    if (before < 1000) {
      CHECK(find_expansion(name, domain, before) == nullptr);
      CHECK(std::ranges::any_of(all, [&](const Schema& schema) { return schema.since == before; }));
    }
    ++rows;
  }
  CHECK(rows == 62);
}

TEST_CASE("op_table/kernels") {
  for (const OpRow& row : op_table()) {
    CAPTURE(std::string(row.name));
    std::set<DeviceKind> simple;
    for (const SimpleKernel& kernel : row.parts.kernels) {
      CHECK(simple.insert(kernel.device).second);
      CHECK((kernel.bind != nullptr));
      // Of alternative fields exactly one is set.
      CHECK((!kernel.formats.empty() + (kernel.formats_for != nullptr) + (kernel.offer != nullptr) <= 1));
      CHECK(((kernel.tolerance != 0) + (kernel.tolerance_for != nullptr) + (kernel.offer != nullptr) <= 1));
    }
    for (const DeviceKind device : {DeviceKind::cpu, DeviceKind::cuda}) {
      std::set<std::string_view> names;
      for (const Kernel* kernel : kernels_of(row.name, device)) {
        CAPTURE(std::string(kernel->name()));
        CHECK(names.insert(kernel->name()).second);
        CHECK((kernel->device() == device));
        CHECK_FALSE(kernel->types().empty());
        // Callers ask the CPU's first kernel which input determines the type (infer_types).
        if (const auto on_cpu = kernels_of(row.name, DeviceKind::cpu); !on_cpu.empty())
          CHECK(kernel->typed_input() == on_cpu.front()->typed_input());
        CHECK((find_kernel(row.name, device, kernel->name()) == kernel));
      }
    }
  }
  for (const KernelRow& row : family_kernels())
    CHECK_MESSAGE((find_op(row.op, "") != nullptr || find_op(row.op, "lenslet") != nullptr ||
                   find_op(row.op, "com.microsoft") != nullptr),
                  std::string(row.op));
  CHECK((find_kernel("Conv", DeviceKind::cpu, "no_such_kernel") == nullptr));
}

TEST_CASE("op_table/docs_are_up_to_date") {
  std::ifstream file(LENSLET_SOURCE_DIR "/docs/ops.md", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  CHECK_MESSAGE(text == ops_doc(), "docs/ops.md does not match the op table: build the target update-ops-doc");
}

}  // namespace lenslet::test
