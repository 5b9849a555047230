#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/cuda/upload.h"
#include "base/tensor_bytes.h"
#include "ops/core/kernel.h"
#include "tools/measuring/cuda/memory_bench.h"

namespace lenslet::bench {

Row measure_op(cuda::Session& session, const std::string& what, const Node& node, bool few_bytes) {
  const std::string_view domain = find_op(node.op, "") == nullptr ? "lenslet" : "";
  std::vector<InputInfo> infos;
  std::vector<std::size_t> begins;
  std::size_t from_bytes = 0;
  const auto bytes = [](const TensorType& type) {
    return static_cast<std::size_t>(type.shape.elems()) * dtype_bytes(type.dtype);
  };
  for (const TensorType& type : node.inputs) {
    infos.push_back({.present = true, .type = type});
    begins.push_back((from_bytes + 255) / 256 * 256);
    from_bytes = begins.back() + bytes(type);
  }
  std::vector<cuda::DeviceBuffer<std::byte>> constants;
  for (const Tensor& constant : node.constants) {
    infos.push_back({.present = true, .type = {constant.dtype(), constant.shape()}, .constant = &constant});
    Tensor host = constant;
    constants.push_back(cuda::upload(bytes_of(host)));
    from_bytes += constant.bytes();  // read as well, from buffers of their own
  }
  const Problem problem(make_op(node.op, domain, node.attributes, infos.size(), 1, node.opset), infos);
  const TensorType& type = problem.outputs()[0];
  const DeviceProfile device = cuda::device_profile(session.context().device);
  const Kernel& kernel = *kernels_of(node.op, DeviceKind::cuda).front();
  const Offer offer = kernel.offer(problem, {.device = device});
  const auto candidate = std::find_if(offer.candidates.begin(), offer.candidates.end(), [&](const Candidate& one) {
    return one.inputs[0] == node.format || one.outputs[0] == node.format;
  });
  if (candidate == offer.candidates.end())
    throw Error(ErrorKind::unsupported,
                fmt::format("{} is not run in {}: {}", what, to_string(node.format), offer.refusal));
  const std::unique_ptr<const BoundKernel> bound = kernel.bind({problem, *candidate, device});
  cuda::DeviceBuffer<std::byte> workspace(candidate->workspace_bytes);
  Tensor prepared = prepared_blob(kernel, problem, *candidate);
  const cuda::DeviceBuffer<std::byte> blob = cuda::upload(bytes_of(prepared));
  return measure(
      session, what + (few_bytes ? ", in L2" : ""), from_bytes, bytes(type),
      [&](const cuda::Context& context, const std::byte* from, std::byte* to) {
        std::vector<Tensor> inputs;
        for (std::size_t i = 0; i < infos.size(); ++i)
          inputs.push_back(Tensor::share(infos[i].type.dtype, infos[i].type.shape, nullptr,
                                         i < begins.size() ? from + begins[i] : constants[i - begins.size()].data(),
                                         candidate->inputs[i]));
        Tensor output = Tensor::view(type.dtype, type.shape, to, candidate->outputs[0]);
        bound->run({.inputs = inputs,
                    .outputs = {&output, 1},
                    .workspace = {workspace.data(), workspace.bytes()},
                    .blob = blob.data(),
                    .cuda = &context});
      },
      few_bytes);
}

}  // namespace lenslet::bench
