#pragma once
// Products with known 8-bit weights: Conv, Gemm, MatMul and what QLinearConv and QGemm are.

#include <string>

#include "runtime/passes/quantized/linear.h"

namespace lenslet {

/// Codes that are stored.
struct CodeRange {
  std::int32_t least = 0, most = 255;
};

/// Whether the node is a product, or adds the bias of one.
bool is_product(const GraphEdit& edit, const Node& node);
/// `id`, which quantises the result of `product` to `y`, becomes the requantizing convolution. Empty: done; else why
/// not.
std::string lower_product(GraphEdit& edit, NodeId id, NodeId product, const Linear& y, const CodeRange& range);
/// The same of a node that scales and shifts the channels of an image, as a convolution of each channel by itself.
std::string lower_affine(GraphEdit& edit, NodeId id, NodeId affine, const Linear& y, const CodeRange& range);
std::string lower_qlinear_conv(GraphEdit& edit, NodeId id);

/// `id` becomes a Reshape of `x` to the shape of its output.
void reshape(GraphEdit& edit, NodeId id, ValueId x);

}  // namespace lenslet
