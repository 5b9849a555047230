// Dropout during inference: the data unchanged, and a mask that keeps everything.

#include <bit>
#include <cstring>

#include "base/half.h"
#include "ops/core/copy.h"
#include "ops/core/makers.h"
#include "ops/core/type_check.h"
#include "ops/movement/fill_cuda.h"
#include "ops/movement/strided_copy_cuda.h"

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
  bool runs_in(Format, std::span<const InputInfo>) const override { return true; }
  // The mask has to be written, so with it there is a step to run.
  int alias_input() const override { return has_mask_ ? -1 : 0; }
  bool may_overwrite(int input) const override { return input == 0; }
  double tolerance(std::span<const InputInfo>) const override { return 0; }

  void run_cpu(const RunContext& context) const override {
    copy_bytes(context.inputs[0], context.outputs[0], context.pool);
    if (context.outputs.size() > 1 && !context.outputs[1].empty()) fill_ones(context.outputs[1]);
  }

  std::optional<std::string> refuse_cuda(std::span<const InputInfo>) const override { return std::nullopt; }
  void run_cuda(const CudaRun& run) const override {
    if constexpr (cuda_built) {
      cuda::copy_bytes(run.context, run.inputs[0].bytes(), run.inputs[0].data(), run.outputs[0].data());
      if (run.outputs.size() < 2 || run.outputs[1].empty()) return;
      Tensor& mask = run.outputs[1];
      cuda::fill(run.context, dtype_bytes(mask.dtype()), mask.elems(), one_bits(mask.dtype()), mask.data());
    }
  }

 private:
  static void check_not_training(const InputInfo& mode) {
    if (mode.type.dtype != DType::boolean) throw Error(ErrorKind::invalid_model, "training_mode must be a bool");
    const bool off = mode.constant != nullptr && mode.constant->elems() == 1 && !mode.constant->values<bool>()[0];
    if (!off) throw Error(ErrorKind::unsupported, "training_mode must be a constant false");
  }

  /// 1 as an element of a mask.
  static std::uint32_t one_bits(DType dtype) {
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

  static void fill_ones(Tensor& mask) {
    const auto count = static_cast<std::size_t>(mask.elems());
    const std::uint32_t one = one_bits(mask.dtype());
    if (dtype_bytes(mask.dtype()) == 1)
      std::memset(mask.data(), static_cast<int>(one), count);
    else if (dtype_bytes(mask.dtype()) == 2)
      std::fill_n(static_cast<std::uint16_t*>(mask.data()), count, static_cast<std::uint16_t>(one));
    else
      std::fill_n(static_cast<std::uint32_t*>(mask.data()), count, one);
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
