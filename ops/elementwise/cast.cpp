// Cast between all types, and CastLike, which takes its type from another tensor. Rules: base/convert.h.

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/convert.h"
#include "base/cuda_built.h"
#include "ops/core/checks.h"
#include "ops/core/onnx_types.h"
#include "ops/elementwise/cast_cuda.h"
#include "ops/elementwise/elementwise.h"

namespace lenslet {

namespace {

constexpr std::string_view round_modes[] = {"up", "down", "nearest"};

class RoundingOp : public Op {
 public:
  SmallRounding rounding;

  /// Reads the attributes that the opset has.
  void read(const NodeSpec& spec, AttributeReader& reader) {
    if (!spec.before(19)) rounding.saturate = reader.flag("saturate", true);
    if (spec.before(24)) return;
    const std::string mode = reader.text("round_mode", round_modes[0]);
    const auto* const found = std::ranges::find(round_modes, mode);
    if (found == std::end(round_modes))
      throw Error(ErrorKind::invalid_model, fmt::format("attribute 'round_mode' is '{}'", mode));
    rounding.round_mode = static_cast<SmallRounding::Mode>(found - round_modes);
  }
  AttributeList attributes() const override {
    AttributeList list;
    if (!rounding.saturate) list.emplace_back("saturate", std::int64_t{0});
    if (rounding.round_mode != SmallRounding::Mode::up)
      list.emplace_back("round_mode", std::string(round_modes[static_cast<std::size_t>(rounding.round_mode)]));
    return list;
  }
};

class CastOp final : public RoundingOp {
 public:
  explicit CastOp(DType to) : to_(to) {}

  std::string_view type() const override { return "Cast"; }
  AttributeList attributes() const override {
    AttributeList list = is_small_float(to_) ? RoundingOp::attributes() : AttributeList();
    list.emplace_back("to", dtype_to_onnx(to_));
    return list;
  }
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    return {{to_, required_input(inputs, 0, "input").shape}};
  }
  std::size_t elementwise_inputs() const override { return any_number; }
  bool gives_input_back(std::span<const InputInfo> inputs) const override { return inputs[0].type.dtype == to_; }

 private:
  DType to_;
};

class CastLikeOp final : public RoundingOp {
 public:
  std::string_view type() const override { return "CastLike"; }
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    return {{required_input(inputs, 1, "target_type").dtype, required_input(inputs, 0, "input").shape}};
  }
  std::size_t elementwise_inputs() const override { return 1; }
  bool gives_input_back(std::span<const InputInfo> inputs) const override {
    return inputs[0].type.dtype == inputs[1].type.dtype;
  }
};

void run_cast(const RoundingOp& op, const KernelRun& run) {
  const Tensor& x = run.inputs[0];
  Tensor& y = run.outputs[0];
  if (run.cuda != nullptr) {
    if constexpr (cuda_built)
      cuda::cast(*run.cuda, x.dtype(), x.data(), y.dtype(), y.data(), stored_elems(x), op.rounding);
    return;
  }
  run.pool->parallel_for(stored_elems(x), elementwise_grain, [&](std::int64_t begin, std::int64_t end, int) {
    const auto at = [begin](auto* data, DType dtype) {
      return data + static_cast<std::size_t>(begin) * dtype_bytes(dtype);
    };
    convert_elements(x.dtype(), at(static_cast<const std::byte*>(x.data()), x.dtype()), y.dtype(),
                     at(static_cast<std::byte*>(y.data()), y.dtype()), end - begin, op.rounding);
  });
}

constexpr auto kernels = on_both({.formats_for = formats_of_x, .in_place = input_bit(0), .reads = input_bit(0)},
                                 bind_run<run_cast>, bind_run<run_cast>);

std::shared_ptr<const Op> make(const NodeSpec& spec) {
  AttributeReader reader(spec);
  const auto op = std::make_shared<CastOp>(dtype_from_onnx(reader.required_integer("to")));
  op->read(spec, reader);
  reader.finish();
  return op;
}

std::shared_ptr<const Op> make_like(const NodeSpec& spec) {
  AttributeReader reader(spec);
  const auto op = std::make_shared<CastLikeOp>();
  op->read(spec, reader);
  reader.finish();
  return op;
}

}  // namespace

OpParts cast() { return {make, kernels}; }
OpParts cast_like() { return {make_like, kernels}; }

}  // namespace lenslet
