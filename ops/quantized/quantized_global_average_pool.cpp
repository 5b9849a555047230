// QuantizedGlobalAveragePool: the mean of each channel's 8-bit codes.

#include <fmt/format.h>

#include <algorithm>

#include "ops/core/checks.h"
#include "ops/core/grain.h"
#include "ops/core/kernel.h"
#include "ops/quantized/byte_kernels.h"
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
  if (run.outputs[0].elems() == 0) return;
  const std::int64_t channels = x.shape()[1], pixels = std::max<std::int64_t>(1, x.shape()[2] * x.shape()[3]);
  const float factor = static_cast<float>(static_cast<double>(op.x.scale) / op.y.scale / static_cast<double>(pixels));
  const std::uint8_t flip = sign_flip(x.dtype());
  const auto zeros = static_cast<std::int32_t>(pixels) * (op.x.zero_point + flipped_offset(x.dtype()));
  const bool nhwc = x.format() == formats::nhwc;
  // Some channels of an image at a time: whole cache lines.
  constexpr std::int64_t most = 256;
  const std::int64_t blocks = (channels + most - 1) / most;
  const std::int64_t grain = std::max<std::int64_t>(1, 4 * elementwise_grain / (pixels * std::min(channels, most)));
  run.pool->parallel_for(x.shape()[0] * blocks, grain, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t block = begin; block < end; ++block) {
      const std::int64_t image = block / blocks, first = block % blocks * most,
                         count = std::min(most, channels - first);
      const std::uint8_t* const from = run.in<std::uint8_t>(0) + image * channels * pixels;
      std::int32_t sums[most];
      if (nhwc)
        sum_pixels(from + first, pixels, channels, count, flip, sums);
      else
        for (std::int64_t c = 0; c < count; ++c) sums[c] = sum_bytes(from + (first + c) * pixels, pixels, flip);
      codes_of_sums(sums, count, zeros, factor, op.y, run.out<std::uint8_t>() + image * channels + first);
    }
  });
}

constexpr SimpleKernel kernels[] = {{.types = dtypes<Int8Types>, .formats = nchw_or_nhwc, .bind = bind_run<run_pool>}};

}  // namespace

OpParts quantized_global_average_pool() { return {make_from<QuantizedGlobalAveragePool>, kernels}; }

}  // namespace lenslet
