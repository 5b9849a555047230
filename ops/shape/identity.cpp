// Identity: the same bytes under another name.

#include "ops/core/makers.h"
#include "ops/core/type_check.h"
#include "ops/core/view_op.h"

namespace lenslet {

namespace {

class Identity final : public ViewOp {
 public:
  std::string_view type() const override { return "Identity"; }
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    return {required_input(inputs, 0, "input")};
  }
  bool runs_in(Format, std::span<const InputInfo>) const override { return true; }
  bool may_overwrite(int input) const override { return input == 0; }
};

}  // namespace

std::shared_ptr<const Op> make_identity(const NodeSpec& spec) {
  AttributeReader(spec.attributes).finish();
  return std::make_shared<Identity>();
}

}  // namespace lenslet
