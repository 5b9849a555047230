// QuantizedGlobalAveragePool: the mean of each channel's 8-bit codes.

#include <fmt/format.h>

#include <cmath>

#include "ops/core/checks.h"
#include "ops/core/kernel.h"
#include "ops/quantized/codes.h"
#include "ops/quantized/quantized_op.h"

namespace lenslet {

namespace {

/// [N,C,H,W] to [N,C,1,1]: y = the code of the mean of x's numbers. The sum is exact, times one factor in float32.
class QuantizedGlobalAveragePool final : public Op {
 public:
  explicit QuantizedGlobalAveragePool(const NodeSpec& spec) {
    AttributeReader reader(spec);
    x = read_codes(reader, "x");
    y = read_stored_codes(reader);
    reader.finish();
  }

  Codes x;
  StoredCodes y;

  std::string_view type() const override { return "QuantizedGlobalAveragePool"; }
  AttributeList attributes() const override {
    AttributeList list;
    append_codes(list, "x", x);
    append_codes(list, y);
    return list;
  }
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& of = required_input(inputs, 0, "x");
    require_dtype("input x", of.dtype, {DType::u8, DType::i8});
    require_rank("input x", of.shape, 4, 4);
    const std::int64_t pixels = of.shape[2] * of.shape[3];
    if (pixels == 0) throw Error(ErrorKind::invalid_model, fmt::format("input x {} is empty", of.shape.str()));
    if (pixels > most_pixels)
      throw Error(ErrorKind::unsupported, fmt::format("input x {} has more than 2^22 pixels", of.shape.str()));
    return {{y.type, of.shape.with(2, 1).with(3, 1)}};
  }
  double flops(std::span<const InputInfo> inputs, std::span<const TensorType>) const override {
    return static_cast<double>(inputs[0].type.shape.elems());
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape&) const override {
    return axes_kept(inputs.size(), {0, 1});
  }

 private:
  static constexpr std::int64_t most_pixels = 1 << 22;  // whose sum of differences of codes fits an int32
};

void run_pool(const QuantizedGlobalAveragePool& op, const KernelRun& run) {
  const Tensor& x = run.inputs[0];
  const std::int64_t channels = x.shape()[1], pixels = x.shape()[2] * x.shape()[3];
  const auto strides = element_strides(x.shape(), x.format());
  const float factor = static_cast<float>(static_cast<double>(op.x.scale) / op.y.scale / static_cast<double>(pixels));
  const std::uint8_t flip = sign_flip(x.dtype());
  const std::int32_t zero = op.x.zero_point + flipped_offset(x.dtype());
  const std::int64_t step = x.format() == formats::nhwc ? channels : 1;
  for (std::int64_t i = 0; i < x.shape()[0] * channels; ++i) {
    const std::uint8_t* const from = run.in<std::uint8_t>(0) + i / channels * strides[0] + i % channels * strides[1];
    std::int32_t sum = 0;
    for (std::int64_t pixel = 0; pixel < pixels; ++pixel) sum += (from[pixel * step] ^ flip) - zero;
    const float code = std::rint(static_cast<float>(sum) * factor) + static_cast<float>(op.y.zero_point);
    const float least = static_cast<float>(op.y.least), most = static_cast<float>(op.y.most);
    run.out<std::uint8_t>()[i] =
        static_cast<std::uint8_t>(static_cast<int>(code > least ? std::min(code, most) : least));
  }
}

constexpr SimpleKernel kernels[] = {{.types = dtypes<Int8Types>, .formats = nchw_or_nhwc, .bind = bind_run<run_pool>}};

}  // namespace

OpParts quantized_global_average_pool() { return {make_from<QuantizedGlobalAveragePool>, kernels}; }

}  // namespace lenslet
