#include "tools/measuring/conv_sets.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <span>

#include "lenslet/error.h"

namespace lenslet::tool {
namespace {

struct Layer {
  std::string_view name;
  std::int64_t c, h, w, k, r, s;
  std::int64_t stride = 1, pad_h = 0, pad_w = 0, groups = 1, dilation = 1;
};

NamedConv of_images(std::int64_t n, const Layer& layer) {
  const ConvGeometry geometry{.stride = {layer.stride, layer.stride},
                              .dilation = {layer.dilation, layer.dilation},
                              .pads = {layer.pad_h, layer.pad_w, layer.pad_h, layer.pad_w},
                              .groups = layer.groups};
  return {std::string(layer.name),
          resolve_conv({n, layer.c, layer.h, layer.w}, {layer.k, layer.c / layer.groups, layer.r, layer.s}, geometry)};
}

constexpr Layer resnet50[] = {
    {"r50.stem7x7", 3, 224, 224, 64, 7, 7, 2, 3, 3},
    {"r50.2.a1", 64, 56, 56, 64, 1, 1},
    {"r50.2.3x3", 64, 56, 56, 64, 3, 3, 1, 1, 1},
    {"r50.2.c1", 64, 56, 56, 256, 1, 1},
    {"r50.2.a1b", 256, 56, 56, 64, 1, 1},
    {"r50.3.a1", 256, 56, 56, 128, 1, 1},
    {"r50.3.3x3s2", 128, 56, 56, 128, 3, 3, 2, 1, 1},
    {"r50.3.c1", 128, 28, 28, 512, 1, 1},
    {"r50.3.ds", 256, 56, 56, 512, 1, 1, 2},
    {"r50.3.a1b", 512, 28, 28, 128, 1, 1},
    {"r50.3.3x3", 128, 28, 28, 128, 3, 3, 1, 1, 1},
    {"r50.4.a1", 512, 28, 28, 256, 1, 1},
    {"r50.4.3x3s2", 256, 28, 28, 256, 3, 3, 2, 1, 1},
    {"r50.4.c1", 256, 14, 14, 1024, 1, 1},
    {"r50.4.a1b", 1024, 14, 14, 256, 1, 1},
    {"r50.4.3x3", 256, 14, 14, 256, 3, 3, 1, 1, 1},
    {"r50.5.a1", 1024, 14, 14, 512, 1, 1},
    {"r50.5.3x3s2", 512, 14, 14, 512, 3, 3, 2, 1, 1},
    {"r50.5.c1", 512, 7, 7, 2048, 1, 1},
    {"r50.5.a1b", 2048, 7, 7, 512, 1, 1},
    {"r50.5.3x3", 512, 7, 7, 512, 3, 3, 1, 1, 1},
};

constexpr Layer vgg16[] = {
    {"vgg.1_1", 3, 224, 224, 64, 3, 3, 1, 1, 1},   {"vgg.1_2", 64, 224, 224, 64, 3, 3, 1, 1, 1},
    {"vgg.2_1", 64, 112, 112, 128, 3, 3, 1, 1, 1}, {"vgg.2_2", 128, 112, 112, 128, 3, 3, 1, 1, 1},
    {"vgg.3_1", 128, 56, 56, 256, 3, 3, 1, 1, 1},  {"vgg.3_2", 256, 56, 56, 256, 3, 3, 1, 1, 1},
    {"vgg.4_1", 256, 28, 28, 512, 3, 3, 1, 1, 1},  {"vgg.4_2", 512, 28, 28, 512, 3, 3, 1, 1, 1},
    {"vgg.5_1", 512, 14, 14, 512, 3, 3, 1, 1, 1},
};

constexpr Layer mobilenet_v2[] = {
    {"mbv2.dw1", 32, 112, 112, 32, 3, 3, 1, 1, 1, 32},
    {"mbv2.dw2s2", 96, 112, 112, 96, 3, 3, 2, 1, 1, 96},
    {"mbv2.dw3", 144, 56, 56, 144, 3, 3, 1, 1, 1, 144},
    {"mbv2.dw6", 192, 28, 28, 192, 3, 3, 1, 1, 1, 192},
    {"mbv2.dw384", 384, 14, 14, 384, 3, 3, 1, 1, 1, 384},
    {"mbv2.dw576s2", 576, 14, 14, 576, 3, 3, 2, 1, 1, 576},
    {"mbv2.dw960", 960, 7, 7, 960, 3, 3, 1, 1, 1, 960},
    {"mbv2.pw16-96", 16, 112, 112, 96, 1, 1},
    {"mbv2.pw24-144", 24, 56, 56, 144, 1, 1},
    {"mbv2.pw144-24", 144, 56, 56, 24, 1, 1},
    {"mbv2.pw64-384", 64, 14, 14, 384, 1, 1},
    {"mbv2.pw384-64", 384, 14, 14, 64, 1, 1},
    {"mbv2.pw320-1280", 320, 7, 7, 1280, 1, 1},
};

constexpr Layer squeezenet[] = {
    {"sqz.conv1", 3, 224, 224, 64, 3, 3, 2},       {"sqz.f2.e3", 16, 55, 55, 64, 3, 3, 1, 1, 1},
    {"sqz.f4.e3", 32, 27, 27, 128, 3, 3, 1, 1, 1}, {"sqz.f6.e3", 48, 13, 13, 192, 3, 3, 1, 1, 1},
    {"sqz.f8.e3", 64, 13, 13, 256, 3, 3, 1, 1, 1}, {"sqz.conv10", 512, 13, 13, 1000, 1, 1},
};

constexpr Layer efficientnet_lite0[] = {
    {"lite0.dw144s2", 144, 56, 56, 144, 5, 5, 2, 2, 2, 144},
    {"lite0.dw240", 240, 28, 28, 240, 5, 5, 1, 2, 2, 240},
    {"lite0.pw40-240", 40, 28, 28, 240, 1, 1},
    {"lite0.pw240-40", 240, 28, 28, 40, 1, 1},
    {"lite0.dw480", 480, 14, 14, 480, 5, 5, 1, 2, 2, 480},
    {"lite0.pw80-480", 80, 14, 14, 480, 1, 1},
    {"lite0.dw672", 672, 14, 14, 672, 5, 5, 1, 2, 2, 672},
    {"lite0.pw112-672", 112, 14, 14, 672, 1, 1},
    {"lite0.pw672-112", 672, 14, 14, 112, 1, 1},
    {"lite0.dw1152", 1152, 7, 7, 1152, 5, 5, 1, 2, 2, 1152},
    {"lite0.pw192-1152", 192, 7, 7, 1152, 1, 1},
    {"lite0.pw1152-192", 1152, 7, 7, 192, 1, 1},
};

constexpr Layer densenet121[] = {
    {"dense.1.1x1", 96, 56, 56, 128, 1, 1},  {"dense.1.3x3", 128, 56, 56, 32, 3, 3, 1, 1, 1},
    {"dense.2.1x1", 320, 28, 28, 128, 1, 1}, {"dense.2.3x3", 128, 28, 28, 32, 3, 3, 1, 1, 1},
    {"dense.3.1x1", 640, 14, 14, 128, 1, 1}, {"dense.3.3x3", 128, 14, 14, 32, 3, 3, 1, 1, 1},
    {"dense.4.1x1", 832, 7, 7, 128, 1, 1},   {"dense.4.3x3", 128, 7, 7, 32, 3, 3, 1, 1, 1},
};

constexpr Layer inception_v3[] = {
    {"incv3.1a", 3, 299, 299, 32, 3, 3, 2},
    {"incv3.2a", 32, 149, 149, 32, 3, 3},
    {"incv3.2b", 32, 147, 147, 64, 3, 3, 1, 1, 1},
    {"incv3.3b", 64, 73, 73, 80, 1, 1},
    {"incv3.4a", 80, 73, 73, 192, 3, 3},
    {"incv3.5.5x5", 48, 35, 35, 64, 5, 5, 1, 2, 2},
    {"incv3.5.3x3", 96, 35, 35, 96, 3, 3, 1, 1, 1},
    {"incv3.5.1x1", 288, 35, 35, 64, 1, 1},
    {"incv3.6a", 288, 35, 35, 384, 3, 3, 2},
    {"incv3.6.1x1", 768, 17, 17, 192, 1, 1},
    {"incv3.6.1x7", 160, 17, 17, 160, 1, 7, 1, 0, 3},
    {"incv3.6.7x1", 160, 17, 17, 192, 7, 1, 1, 3, 0},
    {"incv3.7a", 192, 17, 17, 320, 3, 3, 2},
    {"incv3.7.1x3", 384, 8, 8, 384, 1, 3, 1, 0, 1},
    {"incv3.7.3x3", 448, 8, 8, 384, 3, 3, 1, 1, 1},
    {"incv3.7.1x1", 2048, 8, 8, 448, 1, 1},
};

constexpr Layer small[] = {
    {"cifar.3-16", 3, 32, 32, 16, 3, 3, 1, 1, 1},     {"cifar.16-16", 16, 32, 32, 16, 3, 3, 1, 1, 1},
    {"cifar.16-32s2", 16, 32, 32, 32, 3, 3, 2, 1, 1}, {"cifar.32-32", 32, 16, 16, 32, 3, 3, 1, 1, 1},
    {"cifar.32-64s2", 32, 16, 16, 64, 3, 3, 2, 1, 1}, {"cifar.64-64", 64, 8, 8, 64, 3, 3, 1, 1, 1},
    {"mnist.1-8", 1, 28, 28, 8, 5, 5, 1, 2, 2},       {"mnist.8-16", 8, 14, 14, 16, 5, 5, 1, 2, 2},
};

// A problem of a well-known hand-written kernel, and Inception's odd filters.
constexpr Layer seeds[] = {
    {"seed.conv2d_direct", 6, 768, 512, 6, 6, 6},
    {"inc.5x5", 32, 28, 28, 96, 5, 5, 1, 2, 2},
    {"inc.1x7", 192, 17, 17, 192, 1, 7, 1, 0, 3},
};

// Squeeze-and-excite branches of EfficientNet-B0 and MobileNetV3 (large): one pixel an image, into few channels and
// back; and the classifier, as Keras writes it.
constexpr Layer se[] = {
    {"enb0.se32-8", 32, 1, 1, 8, 1, 1},           {"enb0.se8-32", 8, 1, 1, 32, 1, 1},
    {"enb0.se96-4", 96, 1, 1, 4, 1, 1},           {"enb0.se4-96", 4, 1, 1, 96, 1, 1},
    {"enb0.se144-6", 144, 1, 1, 6, 1, 1},         {"enb0.se6-144", 6, 1, 1, 144, 1, 1},
    {"enb0.se240-10", 240, 1, 1, 10, 1, 1},       {"enb0.se10-240", 10, 1, 1, 240, 1, 1},
    {"enb0.se480-20", 480, 1, 1, 20, 1, 1},       {"enb0.se20-480", 20, 1, 1, 480, 1, 1},
    {"enb0.se672-28", 672, 1, 1, 28, 1, 1},       {"enb0.se28-672", 28, 1, 1, 672, 1, 1},
    {"enb0.se1152-48", 1152, 1, 1, 48, 1, 1},     {"enb0.se48-1152", 48, 1, 1, 1152, 1, 1},
    {"mbv3.se72-24", 72, 1, 1, 24, 1, 1},         {"mbv3.se24-72", 24, 1, 1, 72, 1, 1},
    {"mbv3.se120-32", 120, 1, 1, 32, 1, 1},       {"mbv3.se32-120", 32, 1, 1, 120, 1, 1},
    {"mbv3.se480-120", 480, 1, 1, 120, 1, 1},     {"mbv3.se120-480", 120, 1, 1, 480, 1, 1},
    {"mbv3.se672-168", 672, 1, 1, 168, 1, 1},     {"mbv3.se168-672", 168, 1, 1, 672, 1, 1},
    {"mbv3.se960-240", 960, 1, 1, 240, 1, 1},     {"mbv3.se240-960", 240, 1, 1, 960, 1, 1},
    {"mbv3.head960-1280", 960, 1, 1, 1280, 1, 1}, {"mbv3.head1280-1000", 1280, 1, 1, 1000, 1, 1},
};

struct Set {
  std::string_view name;
  std::span<const Layer> layers;
};

constexpr Set sets[] = {
    {"resnet50", resnet50},
    {"vgg16", vgg16},
    {"mobilenet_v2", mobilenet_v2},
    {"squeezenet", squeezenet},
    {"seeds", seeds},
    {"efficientnet_lite0", efficientnet_lite0},
    {"densenet121", densenet121},
    {"inception_v3", inception_v3},
    {"small", small},
    {"se", se},
};

}  // namespace

std::vector<std::string> conv_set_names() {
  std::vector<std::string> names;
  for (const Set& set : sets) names.emplace_back(set.name);
  return names;
}

std::vector<NamedConv> conv_set(std::string_view name, const std::vector<std::int64_t>& batches) {
  const Set* set = std::ranges::find(sets, name, &Set::name);
  if (set == std::end(sets))
    throw Error(ErrorKind::invalid_argument, fmt::format("no set of convolutions is called \"{}\"; there are: {}", name,
                                                         fmt::join(conv_set_names(), ", ")));
  std::vector<NamedConv> list;
  for (const Layer& layer : set->layers)
    for (const std::int64_t n : batches) list.push_back(of_images(n, layer));
  return list;
}

}  // namespace lenslet::tool
