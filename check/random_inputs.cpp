#include "check/random_inputs.h"

#include <random>

#include "lenslet/check.h"
#include "oracle/draw.h"

namespace lenslet {

std::vector<Tensor> check::random_inputs(const Model& model, const PlanInfo& plan, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::vector<Tensor> tensors;
  for (std::size_t i = 0; i < plan.inputs.size(); ++i)
    oracle::draw(tensors.emplace_back(model.inputs().at(i).dtype, plan.inputs[i].second), engine);
  return tensors;
}

Tensor random_tensor(DType dtype, const Shape& shape, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  Tensor tensor(dtype, shape);
  oracle::draw(tensor, engine);
  return tensor;
}

}  // namespace lenslet
