// The op table as Markdown.

#include <fmt/format.h>

#include "base/boundary.h"
#include "lenslet/model.h"
#include "ops/core/kernel.h"
#include "ops/core/never.h"

namespace lenslet {
namespace {

/// Types that a device's kernels support: "float32, int64", "any type", or "-" without a kernel.
std::string types_on(DeviceKind device, std::string_view op) {
  DTypeSet types;
  for (const Kernel* kernel : kernels_of(op, device)) types = types.with(kernel->types());
  return types.empty() ? "-" : types.str();
}

}  // namespace

std::string op_support_table() {
  return with_errors([] {
    std::string text = "| operator | domain | read from version | CPU | CUDA | notes |\n|---|---|---|---|---|---|\n";
    for (const OpRow& row : op_table()) {
      if (row.min_opset == never) continue;  // steps that only passes make
      text += fmt::format("| {} | {} | {} | {} | {} | {} |\n", row.name, row.domain.empty() ? "ai.onnx" : row.domain,
                          row.min_opset, types_on(DeviceKind::cpu, row.name), types_on(DeviceKind::cuda, row.name),
                          row.notes);
    }
    return text;
  });
}

}  // namespace lenslet
