#pragma once
// docs/ops.md as generated from the rows, which builds without CUDA have, too.

#include <fmt/format.h>

#include <map>
#include <string>

#include "lenslet/model.h"
#include "ops/core/never.h"
#include "ops/core/op.h"
#include "ops/expand.h"
#include "tests/ops/op_sources.h"

namespace lenslet::test {

/// op_support_table() with a last column, the file that defines the operator; and the steps made only by passes.
inline std::string op_tables() {
  const std::map<std::string, std::string> sources = op_sources();
  const auto link = [&](std::string_view op) {
    const auto found = sources.find(std::string(op));
    const std::string file = found == sources.end() ? "?" : found->second;
    return fmt::format(" [{0}](../ops/{0}) |\n", file);
  };
  std::string text = op_support_table(), steps;
  std::size_t end = text.find('\n');
  text.replace(end, 1, " source |\n");
  end = text.find('\n', text.find('\n') + 1);
  text.replace(end, 1, "---|\n");
  end = text.find('\n', end);
  for (const OpRow& row : op_table()) {
    if (row.min_opset == never) {
      steps += fmt::format("| {} | {} |{}", row.name, row.notes, link(row.name));
      continue;
    }
    end = text.find('\n', end + 1);
    text.replace(end, 1, link(row.name));
    end = text.find('\n', end);
  }
  return text + "\nSteps that only passes make:\n\n| step | notes | source |\n|---|---|---|\n" + steps;
}

inline std::string ops_doc() {
  return R"(# Operators

Written from the operators' and kernels' rows (ops/table.cpp) by the target `update-ops-doc`; a test fails when it is
out of date.

Models of opset 1 to 28 are read, nodes of opsets before 7 as those of 7, or as the second table says. "read from
version" is the first version of the operator whose attributes and inputs are understood; later versions up to opset 28
are understood too, except as the notes say. CPU and CUDA give the
element types that the kernels there take, "-" where there is none. An attribute or type that is not supported is
refused at load, by name. The few forms that only the CPU takes are in [limits.md](limits.md). "source" is the file that
says what the operator is and names its kernels.

)" + op_tables() +
         R"(
Operators that are read as others (ops/expand.cpp), with the types and devices of those:

)" + expansion_table();
}

}  // namespace lenslet::test
