// Identity: the same bytes under another name.

#include "ops/core/checks.h"
#include "ops/shape/view_op.h"

namespace lenslet {

namespace {

class Identity final : public ViewOp {
 public:
  std::string_view type() const override { return "Identity"; }
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    return {required_input(inputs, 0, "input")};
  }
  std::size_t elementwise_inputs() const override { return any_number; }
};

constexpr auto kernels = on_either({.formats = nchw_or_nhwc, .in_place = input_bit(0), .bind = bind_run<run_view>});

}  // namespace

OpParts identity() { return {make_plain<Identity>, kernels}; }

}  // namespace lenslet
