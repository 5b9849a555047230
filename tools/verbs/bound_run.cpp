#include "tools/verbs/bound_run.h"

#include "lenslet/error.h"

namespace lenslet::tool {

namespace {

// Lists of sizes or axes have one element for each axis; ranges and repeats are not much longer.
constexpr std::int64_t short_list = 1024;

}  // namespace

Runner runner_for(const Model& model, std::span<const Tensor> inputs, PlanOptions options) {
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (!inputs[i].empty()) options.input_shapes.emplace_back(model.inputs()[i].name, inputs[i].shape());
  try {
    return Runner(model, options);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::unsupported) throw;
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (!inputs[i].empty() && inputs[i].shape().rank() <= 1 && inputs[i].elems() <= short_list)
        options.input_values.emplace_back(model.inputs()[i].name, inputs[i]);
    if (options.input_values.empty()) throw;
  }
  return Runner(model, options);
}

}  // namespace lenslet::tool
