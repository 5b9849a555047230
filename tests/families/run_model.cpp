// run_model MODEL: a model's outputs for random inputs bit by bit, or the error that refuses it.

#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "lenslet/error.h"
#include "lenslet/runner.h"

int main(int argc, char** argv) {
  try {
    if (argc != 2) return 2;
    const lenslet::Model model = lenslet::Model::load(argv[1]);
    lenslet::PlanOptions options;
    options.device = "cpu";
    std::vector<lenslet::Tensor> inputs;
    std::mt19937 random(7);
    for (const lenslet::PortInfo& port : model.inputs()) {
      std::vector<std::int64_t> dims = port.dims;
      for (std::int64_t& dim : dims)
        if (dim < 0) dim = 2;
      lenslet::Tensor& input = inputs.emplace_back(port.dtype, lenslet::Shape(dims));
      options.input_shapes.emplace_back(port.name, input.shape());
      for (float& x : input.values<float>()) x = static_cast<float>(random() % 1024) / 256 - 2;
    }
    lenslet::Runner runner(model, options);
    for (const lenslet::Tensor& output : runner.run(inputs)) {
      std::uint64_t hash = 14695981039346656037U;  // FNV-1a
      for (const float value : output.values<float>()) {
        std::uint32_t bits = 0;
        std::memcpy(&bits, &value, sizeof bits);
        hash = (hash ^ bits) * 1099511628211U;
      }
      fmt::print("{} {:016x}\n", output.shape().str(), hash);
    }
  } catch (const lenslet::Error& error) {
    fmt::print("{}\n", error.what());
    return 1;
  }
  return 0;
}
