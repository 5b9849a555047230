#include "tools/measuring/micro/layers.h"

namespace lenslet::bench {
namespace {

Layer layer(const char* network, std::int64_t c, std::int64_t size, std::int64_t k, std::int64_t kernel,
            std::int64_t stride, int uses, std::int64_t groups = 1) {
  ConvGeometry geometry;
  const std::int64_t pad = kernel / 2;
  geometry.stride = {stride, stride};
  geometry.pads = {pad, pad, pad, pad};
  geometry.groups = groups;
  Layer made{network, resolve_conv({1, c, size, size}, {k, c / groups, kernel, kernel}, geometry), uses};
  made.problem.bias = true;
  made.problem.activation.kind = Activation::Kind::relu;
  return made;
}

Layer depthwise(const char* network, std::int64_t c, std::int64_t size, std::int64_t kernel, std::int64_t stride,
                int uses) {
  return layer(network, c, size, c, kernel, stride, uses, c);
}

}  // namespace

std::vector<Layer> layers() {
  const char* const resnet = "resnet50";
  const char* const squeezenet = "squeezenet1.1";
  const char* const mobilenet = "mobilenetv2";
  const char* const lite = "efficientnet-lite0";
  const char* const vgg = "vgg16";
  const char* const cifar = "cifar-resnet20";
  const char* const mnist = "mnist";
  return {
      layer(resnet, 3, 224, 64, 7, 2, 1),        layer(resnet, 64, 56, 64, 1, 1, 1),
      layer(resnet, 64, 56, 64, 3, 1, 3),        layer(resnet, 64, 56, 256, 1, 1, 4),
      layer(resnet, 256, 56, 64, 1, 1, 2),       layer(resnet, 256, 56, 128, 1, 1, 1),
      layer(resnet, 128, 56, 128, 3, 2, 1),      layer(resnet, 128, 28, 128, 3, 1, 3),
      layer(resnet, 128, 28, 512, 1, 1, 4),      layer(resnet, 256, 56, 512, 1, 2, 1),
      layer(resnet, 512, 28, 128, 1, 1, 3),      layer(resnet, 512, 28, 256, 1, 1, 1),
      layer(resnet, 256, 28, 256, 3, 2, 1),      layer(resnet, 256, 14, 256, 3, 1, 5),
      layer(resnet, 256, 14, 1024, 1, 1, 6),     layer(resnet, 512, 28, 1024, 1, 2, 1),
      layer(resnet, 1024, 14, 256, 1, 1, 5),     layer(resnet, 1024, 14, 512, 1, 1, 1),
      layer(resnet, 512, 14, 512, 3, 2, 1),      layer(resnet, 512, 7, 512, 3, 1, 2),
      layer(resnet, 512, 7, 2048, 1, 1, 3),      layer(resnet, 1024, 14, 2048, 1, 2, 1),
      layer(resnet, 2048, 7, 512, 1, 1, 2),      layer(squeezenet, 3, 224, 64, 3, 2, 1),
      layer(squeezenet, 64, 55, 16, 1, 1, 1),    layer(squeezenet, 16, 55, 64, 1, 1, 2),
      layer(squeezenet, 16, 55, 64, 3, 1, 2),    layer(squeezenet, 128, 55, 16, 1, 1, 1),
      layer(squeezenet, 128, 27, 32, 1, 1, 1),   layer(squeezenet, 32, 27, 128, 1, 1, 2),
      layer(squeezenet, 32, 27, 128, 3, 1, 2),   layer(squeezenet, 256, 27, 32, 1, 1, 1),
      layer(squeezenet, 256, 13, 48, 1, 1, 1),   layer(squeezenet, 48, 13, 192, 3, 1, 2),
      layer(squeezenet, 64, 13, 256, 3, 1, 2),   layer(squeezenet, 512, 13, 64, 1, 1, 1),
      layer(squeezenet, 512, 13, 1000, 1, 1, 1), layer(mobilenet, 3, 224, 32, 3, 2, 1),
      depthwise(mobilenet, 32, 112, 3, 1, 1),    layer(mobilenet, 32, 112, 16, 1, 1, 1),
      layer(mobilenet, 16, 112, 96, 1, 1, 1),    depthwise(mobilenet, 96, 112, 3, 2, 1),
      layer(mobilenet, 96, 56, 24, 1, 1, 1),     layer(mobilenet, 24, 56, 144, 1, 1, 2),
      depthwise(mobilenet, 144, 56, 3, 1, 1),    layer(mobilenet, 144, 56, 24, 1, 1, 1),
      depthwise(mobilenet, 144, 56, 3, 2, 1),    layer(mobilenet, 32, 28, 192, 1, 1, 3),
      depthwise(mobilenet, 192, 28, 3, 1, 2),    layer(mobilenet, 192, 28, 32, 1, 1, 2),
      layer(mobilenet, 64, 14, 384, 1, 1, 4),    depthwise(mobilenet, 384, 14, 3, 1, 4),
      layer(mobilenet, 384, 14, 64, 1, 1, 3),    layer(mobilenet, 384, 14, 96, 1, 1, 1),
      layer(mobilenet, 96, 14, 576, 1, 1, 3),    depthwise(mobilenet, 576, 14, 3, 1, 2),
      layer(mobilenet, 576, 14, 96, 1, 1, 2),    depthwise(mobilenet, 576, 14, 3, 2, 1),
      layer(mobilenet, 160, 7, 960, 1, 1, 3),    depthwise(mobilenet, 960, 7, 3, 1, 3),
      layer(mobilenet, 960, 7, 160, 1, 1, 2),    layer(mobilenet, 960, 7, 320, 1, 1, 1),
      layer(mobilenet, 320, 7, 1280, 1, 1, 1),   depthwise(lite, 144, 56, 5, 2, 1),
      depthwise(lite, 240, 28, 5, 1, 1),         layer(lite, 40, 28, 240, 1, 1, 2),
      layer(lite, 240, 28, 40, 1, 1, 1),         depthwise(lite, 480, 14, 5, 1, 1),
      layer(lite, 80, 14, 480, 1, 1, 3),         depthwise(lite, 672, 14, 5, 1, 2),
      layer(lite, 112, 14, 672, 1, 1, 3),        layer(lite, 672, 14, 112, 1, 1, 2),
      depthwise(lite, 1152, 7, 5, 1, 3),         layer(lite, 192, 7, 1152, 1, 1, 4),
      layer(lite, 1152, 7, 192, 1, 1, 3),        layer(vgg, 3, 224, 64, 3, 1, 1),
      layer(vgg, 64, 224, 64, 3, 1, 1),          layer(vgg, 64, 112, 128, 3, 1, 1),
      layer(vgg, 128, 112, 128, 3, 1, 1),        layer(vgg, 256, 56, 256, 3, 1, 2),
      layer(vgg, 512, 28, 512, 3, 1, 2),         layer(vgg, 512, 14, 512, 3, 1, 3),
      layer(cifar, 3, 32, 16, 3, 1, 1),          layer(cifar, 16, 32, 16, 3, 1, 6),
      layer(cifar, 16, 32, 32, 3, 2, 1),         layer(cifar, 32, 16, 32, 3, 1, 5),
      layer(cifar, 32, 16, 64, 3, 2, 1),         layer(cifar, 64, 8, 64, 3, 1, 5),
      layer(mnist, 1, 28, 8, 5, 1, 1),           layer(mnist, 8, 14, 16, 5, 1, 1),
  };
}

}  // namespace lenslet::bench
