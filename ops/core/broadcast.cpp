#include "ops/core/broadcast.h"

#include <fmt/format.h>

#include <cassert>

#include "lenslet/error.h"

namespace lenslet {

Shape broadcast_shapes(const Shape& a, const Shape& b) {
  const int rank = std::max(a.rank(), b.rank());
  std::array<std::int64_t, Shape::max_rank> dims{};
  for (int i = 0; i < rank; ++i) {
    const int ia = i - (rank - a.rank()), ib = i - (rank - b.rank());
    const std::int64_t da = ia < 0 ? 1 : a[ia], db = ib < 0 ? 1 : b[ib];
    if (da != db && da != 1 && db != 1)
      throw Error(ErrorKind::invalid_model, fmt::format("shapes {} and {} do not broadcast", a.str(), b.str()));
    dims[static_cast<std::size_t>(i)] = da == 1 ? db : da;
  }
  return Shape(std::span<const std::int64_t>(dims.data(), static_cast<std::size_t>(rank)));
}

BroadcastLoops::BroadcastLoops(const Shape& output, Format output_layout, std::span<const Operand> ops)
    : operands(static_cast<int>(ops.size())) {
  assert(ops.size() <= max_operands);
  // Dimensions of the output from the outermost to the innermost in its memory.
  const auto order = memory_order(output.rank(), output_layout);
  std::array<std::array<std::int64_t, Shape::max_rank>, max_operands> own{};
  for (std::size_t o = 0; o < ops.size(); ++o) own[o] = element_strides(*ops[o].shape, ops[o].layout);

  for (int k = 0; k < output.rank(); ++k) {
    const int d = order[static_cast<std::size_t>(k)];
    const std::int64_t dim = output[d];
    if (dim == 1) continue;
    std::array<std::int64_t, max_operands> step{};
    for (std::size_t o = 0; o < ops.size(); ++o) {
      const int own_dim = d - (output.rank() - ops[o].shape->rank());
      if (own_dim >= 0 && (*ops[o].shape)[own_dim] != 1) step[o] = own[o][static_cast<std::size_t>(own_dim)];
    }
    const auto last = static_cast<std::size_t>(rank - 1);
    bool merges = rank > 0;
    for (std::size_t o = 0; merges && o < ops.size(); ++o) merges = strides[o][last] == step[o] * dim;
    const std::size_t at = merges ? last : static_cast<std::size_t>(rank++);
    dims[at] = merges ? dims[at] * dim : dim;
    for (std::size_t o = 0; o < ops.size(); ++o) strides[o][at] = step[o];
  }
  if (rank == 0) {
    rank = 1;
    dims[0] = 1;
  }
}

std::int64_t BroadcastLoops::rows() const {
  std::int64_t product = 1;
  for (int d = 0; d + 1 < rank; ++d) product *= dims[static_cast<std::size_t>(d)];
  return inner() == 0 ? 0 : product;
}

}  // namespace lenslet
