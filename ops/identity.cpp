// Identity: the same bytes under another name.

#include "ops/copy.h"
#include "ops/makers.h"
#include "ops/type_check.h"

namespace lenslet {

namespace {

class Identity final : public Op {
 public:
  std::string_view type() const override { return "Identity"; }
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    return {required_input(inputs, 0, "input")};
  }
  bool runs_in(Layout, std::span<const InputInfo>) const override { return true; }
  int alias_input() const override { return 0; }
  bool may_overwrite(int input) const override { return input == 0; }
  double tolerance(std::span<const InputInfo>) const override { return 0; }
  void run_cpu(const RunContext& context) const override {
    copy_bytes(context.inputs[0], context.outputs[0], context.pool);
  }
};

}  // namespace

std::shared_ptr<const Op> make_identity(const NodeSpec& spec) {
  AttributeReader(spec.attributes).finish();
  return std::make_shared<Identity>();
}

}  // namespace lenslet
