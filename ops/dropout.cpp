// Dropout during inference: the data unchanged, and a mask that keeps everything.

#include <cstring>

#include "ops/copy.h"
#include "ops/makers.h"
#include "ops/type_check.h"
#include "runtime/base/half.h"

namespace lenslet {

namespace {

class Dropout final : public Op {
 public:
  Dropout(bool boolean_mask, bool has_mask) : boolean_mask_(boolean_mask), has_mask_(has_mask) {}

  std::string_view type() const override { return "Dropout"; }
  AttributeList attributes() const override { return {{"mask", std::string(boolean_mask_ ? "bool" : "data")}}; }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& data = required_input(inputs, 0, "data");
    if (present(inputs, 2)) check_not_training(inputs[2]);
    std::vector<TensorType> types{data};
    if (has_mask_) {
      types.push_back({boolean_mask_ ? DType::boolean : data.dtype, data.shape});
      require_dtype("the mask", types[1].dtype, {DType::boolean, DType::f32, DType::f16, DType::bf16});
    }
    return types;
  }
  bool runs_in(Layout, std::span<const InputInfo>) const override { return true; }
  // The mask has to be written, so with it there is a step to run.
  int alias_input() const override { return has_mask_ ? -1 : 0; }
  bool may_overwrite(int input) const override { return input == 0; }
  double tolerance(std::span<const InputInfo>) const override { return 0; }

  void run_cpu(const RunContext& context) const override {
    copy_bytes(context.inputs[0], context.outputs[0], context.pool);
    if (context.outputs.size() > 1 && !context.outputs[1].empty()) fill_ones(context.outputs[1]);
  }

 private:
  static void check_not_training(const InputInfo& mode) {
    if (mode.type.dtype != DType::boolean) throw Error(ErrorKind::invalid_model, "training_mode must be a bool");
    const bool off = mode.constant != nullptr && mode.constant->elems() == 1 && !mode.constant->values<bool>()[0];
    if (!off) throw Error(ErrorKind::unsupported, "training_mode must be a constant false");
  }

  static void fill_ones(Tensor& mask) {
    const auto count = static_cast<std::size_t>(mask.elems());
    if (mask.dtype() == DType::boolean) {
      std::memset(mask.data(), 1, count);
    } else if (mask.dtype() == DType::f32) {
      std::fill_n(static_cast<float*>(mask.data()), count, 1.0F);
    } else {
      const std::uint16_t one = mask.dtype() == DType::f16 ? f16_from_f32(1.0F) : bf16_from_f32(1.0F);
      std::fill_n(static_cast<std::uint16_t*>(mask.data()), count, one);
    }
  }

  bool boolean_mask_;
  bool has_mask_;
};

}  // namespace

std::shared_ptr<const Op> make_dropout(const NodeSpec& spec) {
  AttributeReader reader(spec.attributes);
  reader.ignore("seed");
  if (spec.opset < 12) reader.ignore("ratio");
  reader.finish();
  return std::make_shared<Dropout>(spec.opset >= 10, spec.outputs > 1);
}

}  // namespace lenslet
