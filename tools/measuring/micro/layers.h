#pragma once
// Convolution layers of known networks, for micro-benchmarks: each distinct layer once, with its number of uses.

#include <vector>

#include "ops/conv/problem.h"

namespace lenslet::bench {

struct Layer {
  const char* network;
  ConvProblem problem;
  int uses = 1;
};

/// ResNet-50, SqueezeNet 1.1, MobileNetV2, EfficientNet-Lite0, VGG-16, CIFAR ResNet-20 and an MNIST net, batch 1, with
/// bias and ReLU.
std::vector<Layer> layers();

}  // namespace lenslet::bench
