#pragma once
// The convolutions that `lenslet bench conv` knows by name: layers of common networks, each distinct one once.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tools/measuring/parse_conv.h"

namespace lenslet::tool {

struct NamedConv {
  std::string name;
  ConvProblem problem;
  bool with_epilogue = false;  ///< `problem` specifies its epilogue
};

/// Networks ("resnet50", "vgg16" ...), "seeds", "small" (CIFAR-10's ResNet-20, MNIST) and "se" (squeeze-and-excite).
std::vector<std::string> conv_set_names();

/// The set's layers for each batch size, without bias and activation. Layer names ("r50.2.3x3") equal those in the
/// peers' tables, so that rows join by name and N. Error(invalid_argument) for an unknown set.
std::vector<NamedConv> conv_set(std::string_view set, const std::vector<std::int64_t>& batches);

enum class Shapes { usual, odd };

/// `count` random convolutions without bias and activation (drawn_convs.cpp), named "drawn.SEED.INDEX" or
/// "odd.SEED.INDEX". A seed gives the same ones everywhere; a smaller count gives a prefix. Common shapes: 1 to 64
/// images, 1 to 1024 channels and filters, sides of 5 to 160, windows of 1x1 to 9x9, strides, dilations, groups and
/// depthwise, none much larger than layers of networks. Odd shapes, rare in networks for photographs: lines (waveforms,
/// 1-D networks), long depthwise filters, thin images, windows as large as the image, tiny images with many channels,
/// few channels; 1 to 5 images, 0.1 million to 3 billion operations.
std::vector<NamedConv> drawn_convs(int count, std::uint64_t seed, Shapes shapes = Shapes::usual);

}  // namespace lenslet::tool
