// Dropout in inference: the data unchanged, and a mask that keeps everything.

#include <bit>

#include "base/half.h"
#include "ops/core/checks.h"
#include "ops/movement/moves.h"

namespace lenslet {

namespace {

class Dropout final : public Op {
 public:
  explicit Dropout(const NodeSpec& spec) : boolean_mask_(!spec.before(10)), has_mask_(spec.outputs > 1) {
    AttributeReader reader(spec);
    if (spec.normalised)
      boolean_mask_ = reader.text("mask", "bool") == "bool";
    else
      reader.ignore("seed");
    if (spec.before(12)) reader.ignore("ratio");
    reader.finish();
  }

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
  std::size_t elementwise_inputs() const override { return 1; }
  // The mask must be written, so with it there is a step to run.
  int alias_input() const override { return has_mask_ ? -1 : 0; }
  bool gives_input_back(std::span<const InputInfo>) const override { return true; }

 private:
  static void check_not_training(const InputInfo& mode) {
    if (mode.type.dtype != DType::boolean) throw Error(ErrorKind::invalid_model, "training_mode must be a bool");
    const bool off = mode.constant != nullptr && mode.constant->elems() == 1 && !mode.constant->values<bool>()[0];
    if (!off) throw Error(ErrorKind::unsupported, "training_mode must be a constant false");
  }

  bool boolean_mask_;
  bool has_mask_;
};

/// The bits of 1 in a mask.
std::uint32_t one_bits(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return std::bit_cast<std::uint32_t>(1.0F);
    case DType::f16:
      return f16_from_f32(1.0F);
    case DType::bf16:
      return bf16_from_f32(1.0F);
    default:
      return 1;  // bool
  }
}

void run(const Dropout&, const KernelRun& run) {
  copy_bytes(run, run.inputs[0], run.outputs[0]);
  if (run.outputs.size() > 1 && !run.outputs[1].empty()) fill(run, one_bits(run.outputs[1].dtype()), run.outputs[1]);
}

constexpr auto kernels =
    on_either({.formats = nchw_or_nhwc, .in_place = input_bit(0), .reads = input_bit(0), .bind = bind_run<run>});

}  // namespace

OpParts dropout() { return {make_from<Dropout>, kernels}; }

}  // namespace lenslet
