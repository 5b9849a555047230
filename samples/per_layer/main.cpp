// per_layer MODEL.onnx: runs the model on random input and prints each layer's output statistics through the observer.
#include <lenslet/runner.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

namespace {

void fill_with_noise(lenslet::Tensor& tensor, std::mt19937& generator) {
  std::normal_distribution<float> normal;
  std::generate(tensor.values<float>().begin(), tensor.values<float>().end(), [&] { return normal(generator); });
}

void print_layer(const lenslet::LayerEvent& event) {
  const lenslet::Tensor output = event.outputs[0].to_format(lenslet::formats::nchw);
  std::printf("%-28.28s %-14s %-18s %-18s %8.3f", event.info->name.c_str(), event.info->op.c_str(),
              event.info->algorithm.c_str(), output.shape().str().c_str(), event.ms);
  if (output.dtype() == lenslet::DType::f32 && output.elems() > 0) {
    double sum = 0, sum_of_squares = 0;
    float low = output.values<float>()[0], high = low;
    for (const float value : output.values<float>()) {
      sum += value;
      sum_of_squares += double{value} * value;
      low = std::min(low, value);
      high = std::max(high, value);
    }
    const auto count = static_cast<double>(output.elems());
    std::printf(" %11.4g %11.4g %11.4g %11.4g", double{low}, sum / count, double{high},
                std::sqrt(sum_of_squares / count));
  }
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) return std::fprintf(stderr, "usage: per_layer MODEL.onnx\n"), 2;
  const lenslet::Model model = lenslet::Model::load(argv[1]);
  lenslet::Runner runner(model);
  std::mt19937 generator(1);
  std::vector<lenslet::Tensor> inputs;
  for (std::size_t i = 0; i < model.inputs().size(); ++i) {
    if (model.inputs()[i].dtype != lenslet::DType::f32)
      return std::fprintf(stderr, "per_layer: input %s is not float32\n", model.inputs()[i].name.c_str()), 1;
    inputs.emplace_back(lenslet::DType::f32, runner.plan().inputs[i].second);
    fill_with_noise(inputs.back(), generator);
  }
  runner.run(inputs);  // warm up, so that the times below are those of a run in use
  std::printf("%-28s %-14s %-18s %-18s %8s %11s %11s %11s %11s\n", "layer", "op", "algorithm", "output", "ms", "min",
              "mean", "max", "rms");
  runner.set_observer(print_layer);
  runner.run(inputs);
} catch (const std::exception& error) {
  return std::fprintf(stderr, "per_layer: %s\n", error.what()), 1;
}
