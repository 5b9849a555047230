#pragma once
// Which block of one launch of Winograd's pipeline does what. Plain C++: tested where there is no device, too.
//
// A launch multiplies one chunk of tiles while it transforms the input of the next one and the output of the one
// before: the product is bound by arithmetic and the transforms by memory, and one after the other they take the sum of
// both. Launch i of chunks + 2: input of chunk i, product of chunk i - 1, output of chunk i - 2. There are two of V and
// of M.

#include "base/cuda/host_device.h"

namespace lenslet::cuda {

/// Blocks of a launch.
struct PipelineCut {
  int products = 0, inputs = 0, outputs = 0;
  int among = 0;  ///< of the transforms' blocks, those spread among the product's; the others come after them

  PipelineCut() = default;
  /// The last third of the transforms fills multiprocessors while the last blocks of the product end, which take ten
  /// times as long. A first guess.
  PipelineCut(int product_blocks, int input_blocks, int output_blocks)
      : products(product_blocks),
        inputs(input_blocks),
        outputs(output_blocks),
        among(input_blocks + output_blocks - (input_blocks + output_blocks) / 3) {}

  int blocks() const { return products + inputs + outputs; }
};

struct PipelineBlock {
  enum class Kind { product, input, output } kind;
  int index;  ///< among the blocks of its kind
};

/// Every block of every kind once, for block from 0 to blocks() - 1. Blocks start in this order: both transforms are
/// spread evenly.
LENSLET_HOST_DEVICE inline PipelineBlock pipeline_block(const PipelineCut& cut, unsigned block) {
  // Of `part` things spread evenly among `whole`, how many lie before number i.
  const auto before = [](unsigned i, int part, int whole) {
    return static_cast<unsigned>(static_cast<unsigned long long>(i) * static_cast<unsigned>(part) /
                                 static_cast<unsigned>(whole));
  };
  unsigned transform = block - static_cast<unsigned>(cut.products);
  if (const int mixed = cut.products + cut.among; block < static_cast<unsigned>(mixed)) {
    transform = before(block, cut.among, mixed);
    if (before(block + 1, cut.among, mixed) == transform)
      return {PipelineBlock::Kind::product, static_cast<int>(block - transform)};
  }
  const unsigned input = before(transform, cut.inputs, cut.inputs + cut.outputs);
  if (before(transform + 1, cut.inputs, cut.inputs + cut.outputs) != input)
    return {PipelineBlock::Kind::input, static_cast<int>(input)};
  return {PipelineBlock::Kind::output, static_cast<int>(transform - input)};
}

}  // namespace lenslet::cuda
