#include "tools/verbs/sparse_work.h"

#include <algorithm>
#include <string>
#include <variant>

namespace lenslet::tool {

std::optional<SparseWork> sparse_work(const LayerEvent& event) {
  constexpr std::size_t x_input = 0, book_input = 1, filter_input = 2, residual_input = 5, table_input = 6;
  const auto inputs = event.inputs;
  if (event.info->op != "SparseConv" || inputs.size() <= filter_input || event.outputs.empty()) return std::nullopt;
  const Tensor &x = inputs[x_input], &book = inputs[book_input], &w = inputs[filter_input], &y = event.outputs[0];
  if (x.empty() || book.empty() || w.empty() || book.dtype() != DType::i32) return std::nullopt;
  std::string kind = "submanifold";
  for (const auto& [name, value] : event.info->attributes)
    if (name == "kind") kind = std::get<std::string>(value);
  // Layout of a rulebook's counts (docs/sparse.md): sites of both sides, then the offsets of the stored taps' pairs and
  // the end of the last.
  const bool submanifold = kind == "submanifold";
  const std::int64_t filters = w.shape()[0], channels = w.shape()[1], taps = w.shape().elems() / (filters * channels);
  const std::int64_t stored = submanifold ? taps / 2 : taps;
  const auto values = book.values<std::int32_t>();
  if (static_cast<std::int64_t>(values.size()) < 3 + stored) return std::nullopt;
  std::int64_t from = values[0], to = values[1], pairs = values[static_cast<std::size_t>(2 + stored)];
  if (from < 0 || to < 0 || pairs < 0 || from > INT32_MAX || pairs > static_cast<std::int64_t>(values.size()))
    return std::nullopt;
  if (kind == "inverse") std::swap(from, to);
  const bool has_table = inputs.size() > table_input && !inputs[table_input].empty();
  const std::int64_t listed =
      (has_table ? taps * to : 2 * pairs) * static_cast<std::int64_t>(sizeof(std::int32_t));  // reads of the rulebook
  if (submanifold) pairs = 2 * pairs + to;
  const auto bytes_of = [](const Tensor& tensor, std::int64_t rows) {
    return rows * tensor.shape()[1] * static_cast<std::int64_t>(dtype_bytes(tensor.dtype()));
  };
  std::int64_t bytes = bytes_of(x, from) + bytes_of(y, to) + listed + static_cast<std::int64_t>(w.bytes());
  if (inputs.size() > residual_input && !inputs[residual_input].empty()) bytes += bytes_of(y, to);
  return SparseWork{2.0 * static_cast<double>(pairs) * static_cast<double>(channels) * static_cast<double>(filters),
                    static_cast<std::size_t>(bytes)};
}

}  // namespace lenslet::tool
