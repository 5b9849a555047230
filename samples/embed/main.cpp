// embed MODEL.onnx PHOTO [LABELS.txt]: classifies a photo with EfficientNet-Lite0, using lenslet's public headers.
#include <lenslet/image.h>
#include <lenslet/runner.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <string>

#define STB_IMAGE_IMPLEMENTATION
#define STBI_MAX_DIMENSIONS 16384  // checked before anything is allocated
#include <stb_image.h>

int main(int argc, char** argv) try {
  if (argc < 3) return std::fprintf(stderr, "usage: embed MODEL.onnx PHOTO [LABELS.txt]\n"), 2;

  int width = 0, height = 0, channels = 0;
  const std::unique_ptr<stbi_uc, decltype(&stbi_image_free)> pixels(stbi_load(argv[2], &width, &height, &channels, 3),
                                                                    stbi_image_free);
  if (!pixels) return std::fprintf(stderr, "embed: %s: %s\n", argv[2], stbi_failure_reason()), 1;

  // How EfficientNet-Lite0 was trained: shorter side to 256, the 224 x 224 centre, (pixel - 127) / 128.
  lenslet::ImageSpec spec;
  spec.mean = {127, 127, 127};
  spec.std = {128, 128, 128};

  const lenslet::Model model = lenslet::Model::load(argv[1]);  // immutable, shared by threads
  lenslet::Runner runner(model);                               // one per thread
  lenslet::Tensor input(lenslet::DType::f32, runner.plan().inputs.at(0).second);
  lenslet::to_input({pixels.get(), height, width, 3}, spec, input);
  lenslet::Tensor scores = runner.run(input)[0].clone();
  if (model.output_op(0) != "Softmax") lenslet::softmax(scores.values<float>());

  std::ifstream label_file(argc > 3 ? argv[3] : "");
  std::vector<std::string> labels;
  for (std::string line; std::getline(label_file, line);) labels.push_back(line);
  for (const auto& [index, probability] : lenslet::top_k(scores.values<float>(), 5)) {
    const auto row = static_cast<std::size_t>(index);
    std::printf("%5.1f%%  %s\n", 100 * probability,
                row < labels.size() ? labels[row].c_str() : std::to_string(index).c_str());
  }
} catch (const std::exception& error) {
  return std::fprintf(stderr, "embed: %s\n", error.what()), 1;
}
