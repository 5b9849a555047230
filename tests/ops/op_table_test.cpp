// The table of operators: its rows make sense, and docs/ops.md says the same.

#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/cuda_built.h"
#include "ops/core/kernel.h"
#include "ops/families.h"
#include "tests/ops/ops_doc.h"

namespace lenslet::test {
namespace {

/// Without the CUDA column of the table.
std::string without_cuda(const std::string& text) {
  constexpr int column = 5;
  std::istringstream lines(text);
  std::string result;
  for (std::string line; std::getline(lines, line); result += line + "\n") {
    std::size_t begin = 0;
    for (int i = 0; i < column && begin != line.npos; ++i) begin = line.find('|', begin + (i > 0 ? 1 : 0));
    if (begin != line.npos) line.erase(begin, line.find('|', begin + 1) - begin);
  }
  return result;
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

// As onnx 1.23 has them: data/onnx_operators.csv, a line an operator and version, from get_all_schemas_with_history().
TEST_CASE("op_table/versions_and_numbers_of_inputs_and_outputs_are_those_of_onnx") {
  struct Schema {
    std::int64_t since;
    int min_inputs, max_inputs, min_outputs, max_outputs;
  };
  std::map<std::string, std::vector<Schema>> schemas;
  std::ifstream file(LENSLET_SOURCE_DIR "/tests/ops/data/onnx_operators.csv");
  std::string line;
  std::getline(file, line);
  REQUIRE(line == "name,since,min_inputs,max_inputs,min_outputs,max_outputs");
  while (std::getline(file, line)) {
    std::replace(line.begin(), line.end(), ',', ' ');
    std::istringstream fields(line);
    std::string name;
    Schema schema{};
    fields >> name >> schema.since >> schema.min_inputs >> schema.max_inputs >> schema.min_outputs >>
        schema.max_outputs;
    schemas[name].push_back(schema);
  }
  std::size_t found = 0;
  for (const OpRow& row : op_table()) {
    if (!row.domain.empty() || !schemas.contains(std::string(row.name))) continue;
    CAPTURE(std::string(row.name));
    ++found;
    const std::vector<Schema>& all = schemas[std::string(row.name)];
    const auto is_read = [&](const Schema& schema) {
      return &schema == &all.back() || (&schema)[1].since > row.min_opset;  // in a version that is read
    };
    const bool is_since = std::ranges::any_of(all, [&](const Schema& schema) { return schema.since == row.min_opset; });
    // Some exporters wrote these before they were operators.
    CHECK((is_since || row.name == "LayerNormalization" || row.name == "ThresholdedRelu"));
    Schema most{0, 99, 0, 99, 0};
    const auto larger = [](int a, int b) { return a == any_number || b == any_number ? any_number : std::max(a, b); };
    for (const Schema& schema : all) {
      if (!is_read(schema)) continue;
      most.min_inputs = std::min(most.min_inputs, schema.min_inputs);
      most.max_inputs = larger(most.max_inputs, schema.max_inputs);
      most.min_outputs = std::min(most.min_outputs, schema.min_outputs);
      most.max_outputs = larger(most.max_outputs, schema.max_outputs);
    }
    CHECK(row.min_inputs == most.min_inputs);
    CHECK(row.max_inputs == (row.name == "Einsum" ? 4 : most.max_inputs));
    CHECK(row.min_outputs == (row.name == "TopK" ? 1 : std::max(1, most.min_outputs)));
    CHECK(row.max_outputs == most.max_outputs);
  }
  CHECK(found == 160);
}

TEST_CASE("op_table/kernels") {
  for (const OpRow& row : op_table()) {
    CAPTURE(std::string(row.name));
    std::set<DeviceKind> simple;
    for (const SimpleKernel& kernel : row.parts.kernels) {
      CHECK(simple.insert(kernel.device).second);
      CHECK((kernel.bind != nullptr));
      // Of what says the same, one says it.
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
        // Callers ask the first kernel of the CPU which input is the typed one (infer_types).
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
  // Builds without CUDA have some of its kernels' rows only.
  const bool same = cuda_built ? text == ops_doc() : without_cuda(text) == without_cuda(ops_doc());
  CHECK_MESSAGE(same, "docs/ops.md does not match the op table: build the target update-ops-doc");
}

}  // namespace lenslet::test
