// lenslet-test-cuda-ops runs the cases of tests/ops on the device: the same operators, the same oracle.

#include <doctest/doctest.h>

#include <cstring>
#include <deque>

#include "base/cuda/session.h"
#include "base/cuda/upload.h"
#include "tests/cuda/device_block.h"
#include "tests/ops/op_runner.h"

namespace lenslet::test {

namespace {

const cuda::Session& session() {
  static const cuda::Session on_first_device(0);
  return on_first_device;
}

class CudaOpRunner final : public OpRunner {
 public:
  std::vector<int> thread_counts() const override { return {1}; }

  std::optional<std::string> refuse(const Op& op, const std::vector<InputInfo>& infos) const override {
    if (op.alias_input() >= 0) return "it only renames bytes";
    return op.refuse_cuda(infos);
  }

  std::vector<Tensor> run(const Op& op, const OpCase& c, const Variant& variant,
                          const std::string& where) const override {
    const std::vector<Tensor> host = inputs_of(c, variant);
    const std::vector<InputInfo> infos = infos_of(host, variant.constant);
    std::vector<Format> layouts;
    for (const Tensor& input : host) layouts.push_back(input.format());
    const std::vector<TensorType> types = op.infer(infos);
    REQUIRE_MESSAGE(types.size() >= c.outputs, where);
    const PlanContext plan{infos, layouts, types, variant.layout, variant.threads, DeviceKind::cuda};
    const cuda::Session& on = session();
    std::size_t prepared_bytes = 0;
    std::shared_ptr<const void> prepared;
    if (!op.prepare_key(plan).empty()) prepared = op.prepare(plan, prepared_bytes);

    std::deque<DeviceBlock> memory;  // blocks stay where they are
    std::vector<Tensor> inputs, host_inputs, outputs;
    std::vector<DeviceBlock*> input_blocks, output_blocks;
    for (std::size_t i = 0; i < c.outputs; ++i) {
      const Format layout = types[i].shape.rank() == 4 ? variant.layout : formats::nchw;
      const auto bytes = static_cast<std::size_t>(types[i].shape.elems()) * dtype_bytes(types[i].dtype);
      output_blocks.push_back(&memory.emplace_back(bytes));
      outputs.push_back(Tensor::view(types[i].dtype, types[i].shape, output_blocks[i]->data(), layout));
    }
    for (std::size_t i = 0; i < host.size(); ++i) {
      input_blocks.push_back(nullptr);
      host_inputs.push_back(infos[i].constant != nullptr ? host[i] : Tensor());
      if (host[i].empty()) {
        inputs.emplace_back();
        continue;
      }
      std::byte* data = nullptr;
      if (variant.in_place == static_cast<int>(i)) {
        data = output_blocks[0]->data();
        cuda::copy_to_device(data, host[i].data(), host[i].bytes());
      } else if (infos[i].constant == nullptr || op.reads_on_cuda(static_cast<int>(i), plan)) {
        input_blocks[i] = &memory.emplace_back(host[i].data(), host[i].bytes());
        data = input_blocks[i]->data();
      }
      inputs.push_back(Tensor::view(host[i].dtype(), host[i].shape(), data, host[i].format()));
    }
    DeviceBlock workspace(op.workspace_bytes(plan));

    // Twice: what a kernel leaves behind (counters, say) must not matter to the next run. In place the input is gone.
    const int runs = variant.in_place >= 0 ? 1 : 2;
    for (int i = 0; i < runs; ++i)
      op.run_cuda({inputs, outputs, host_inputs, {workspace.data(), workspace.bytes()}, prepared.get(), on.context()});
    on.stream().synchronize();

    for (DeviceBlock& block : memory) CHECK_MESSAGE(block.intact(), where, ": bytes around a tensor were written");
    CHECK_MESSAGE(workspace.intact(), where, ": bytes around the workspace were written");
    for (std::size_t i = 0; i < host.size(); ++i)
      if (input_blocks[i] != nullptr && host[i].bytes() > 0)
        CHECK_MESSAGE(std::memcmp(input_blocks[i]->read().data(), host[i].data(), host[i].bytes()) == 0, where,
                      ": input ", i, " was written");
    std::vector<Tensor> results;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      Tensor& result = results.emplace_back(outputs[i].dtype(), outputs[i].shape(), outputs[i].format());
      const std::vector<std::byte> bytes = output_blocks[i]->read();
      if (!bytes.empty()) std::memcpy(result.data(), bytes.data(), bytes.size());
    }
    return results;
  }
};

}  // namespace

const OpRunner& op_runner() {
  static const CudaOpRunner runner;
  return runner;
}

}  // namespace lenslet::test
