#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "tests/ops/op_runner.h"

namespace lenslet::test {

namespace {

constexpr std::size_t guard_bytes = 64;
constexpr auto guard = std::byte{0xA5};
constexpr auto poison = std::byte{0xFF};  // NaN in every floating-point type

/// Poisoned memory, 64-byte aligned, between two guards.
class GuardedBlock {
 public:
  explicit GuardedBlock(std::size_t bytes)
      : bytes_(bytes), memory_(DType::u8, Shape{static_cast<std::int64_t>(bytes + 2 * guard_bytes)}) {
    std::memset(begin(), static_cast<int>(guard), guard_bytes);
    std::memset(data(), static_cast<int>(poison), bytes_);
    std::memset(data() + bytes_, static_cast<int>(guard), guard_bytes);
  }
  std::byte* data() { return begin() + guard_bytes; }
  std::size_t bytes() const { return bytes_; }
  bool intact() {
    const auto ok = [](const std::byte* p) {
      return std::all_of(p, p + guard_bytes, [](std::byte b) { return b == guard; });
    };
    return ok(begin()) && ok(data() + bytes_);
  }

 private:
  std::byte* begin() { return static_cast<std::byte*>(memory_.data()); }
  std::size_t bytes_;
  Tensor memory_;
};

class CpuOpRunner final : public OpRunner {
 public:
  std::vector<int> thread_counts() const override { return {1, 2}; }
  std::optional<std::string> refuse(const Op&, const std::vector<InputInfo>&) const override { return std::nullopt; }
  std::vector<Tensor> run(const Op& op, const OpCase& c, const Variant& variant,
                          const std::string& where) const override {
    // Each input is a copy of its own so that a kernel that writes to its input is found out.
    std::vector<Tensor> inputs = inputs_of(c, variant);
    std::vector<InputInfo> infos = infos_of(inputs, variant.constant);
    std::vector<Format> layouts;
    for (const Tensor& input : inputs) layouts.push_back(input.format());
    const std::vector<TensorType> types = op.infer(infos);
    REQUIRE_MESSAGE(types.size() >= c.outputs, where);

    const PlanContext plan{infos, layouts, types, variant.layout, variant.threads, DeviceKind::cpu};
    std::size_t prepared_bytes = 0;
    std::shared_ptr<const void> prepared;
    if (!op.prepare_key(plan).empty()) prepared = op.prepare(plan, prepared_bytes);

    std::vector<GuardedBlock> blocks;
    std::vector<Tensor> outputs;
    for (std::size_t i = 0; i < c.outputs; ++i) {
      const Format layout = types[i].shape.rank() == 4 ? variant.layout : formats::nchw;
      const auto bytes = static_cast<std::size_t>(types[i].shape.elems()) * dtype_bytes(types[i].dtype);
      outputs.push_back(Tensor::view(types[i].dtype, types[i].shape, blocks.emplace_back(bytes).data(), layout));
    }
    if (variant.in_place >= 0) {
      Tensor& overwritten = inputs[static_cast<std::size_t>(variant.in_place)];
      if (overwritten.bytes() > 0) std::memcpy(outputs[0].data(), overwritten.data(), overwritten.bytes());
      overwritten = Tensor::view(overwritten.dtype(), overwritten.shape(), outputs[0].data(), overwritten.format());
    }
    GuardedBlock workspace(op.workspace_bytes(plan));

    std::vector<Tensor> before;
    for (const Tensor& input : inputs) before.push_back(input.clone());
    ThreadPool pool(variant.threads);
    op.run_cpu({inputs, outputs, {workspace.data(), workspace.bytes()}, prepared.get(), pool});

    for (GuardedBlock& block : blocks) CHECK_MESSAGE(block.intact(), where, ": bytes around an output were written");
    CHECK_MESSAGE(workspace.intact(), where, ": bytes around the workspace were written");
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (static_cast<int>(i) != variant.in_place && before[i].bytes() > 0)
        CHECK_MESSAGE(std::memcmp(inputs[i].data(), before[i].data(), before[i].bytes()) == 0, where, ": input ", i,
                      " was written");
    std::vector<Tensor> results;
    for (const Tensor& output : outputs) results.push_back(output.clone());
    return results;
  }
};

}  // namespace

const OpRunner& cpu_op_runner() {
  static const CpuOpRunner runner;
  return runner;
}

}  // namespace lenslet::test
