// The op table as Markdown.

#include <fmt/format.h>

#include "lenslet/model.h"
#include "ops/core/op.h"

namespace lenslet {

std::string op_support_table() {
  std::string text = "| operator | domain | read from version | CPU | CUDA | notes |\n|---|---|---|---|---|---|\n";
  for (const OpRow& row : op_table()) {
    if (row.domain == "lenslet") continue;  // steps of our own; no file holds them
    text += fmt::format("| {} | {} | {} | yes | {} | {} |\n", row.name, row.domain.empty() ? "ai.onnx" : row.domain,
                        row.min_opset, row.cuda ? "yes" : "no", row.notes);
  }
  return text;
}

}  // namespace lenslet
