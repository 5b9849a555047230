// QuantizedAveragePool: the mean of each window's 8-bit codes.

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "ops/core/blend_codes.h"
#include "ops/core/checks.h"
#include "ops/core/grain.h"
#include "ops/core/kernel.h"
#include "ops/pool/pool_attributes.h"
#include "ops/quantized/byte_kernels.h"
#include "ops/quantized/codes.h"
#include "ops/quantized/quantized_op.h"

namespace lenslet {

namespace {

/// As AveragePool: y = the code of the mean of a window's numbers, where pads are the number 0. The sum of a window is
/// exact, times one factor in float32.
class QuantizedAveragePool final : public Op {
 public:
  explicit QuantizedAveragePool(const NodeSpec& spec) {
    AttributeReader reader(spec);
    geometry = read_pool_geometry(reader);
    counts_pads = reader.flag("count_include_pad", false);
    x = read_codes(reader, "x");
    y = read_stored_codes(reader);
    reader.finish();
  }

  PoolGeometry geometry;
  bool counts_pads = false;
  Codes x;
  StoredCodes y;

  std::string_view type() const override { return "QuantizedAveragePool"; }
  AttributeList attributes() const override {
    AttributeList list;
    append_geometry(list, geometry);
    list.emplace_back("count_include_pad", std::int64_t{counts_pads ? 1 : 0});
    append_codes(list, "x", x);
    append_codes(list, y);
    return list;
  }
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& of = required_input(inputs, 0, "x");
    require_dtype("input x", of.dtype, {DType::u8, DType::i8});
    const PoolProblem p = resolve_pool(of.shape, geometry);
    std::int64_t taps = 1;
    for (const PoolAxis& axis : p.axes)
      if ((taps *= std::min(axis.kernel, std::max<std::int64_t>(1, axis.in))) > most_taps)
        throw Error(ErrorKind::unsupported, "a window has more than 2^22 elements");
    return {{y.type, pool_output(of.shape, p)}};
  }
  double flops(std::span<const InputInfo>, std::span<const TensorType> outputs) const override {
    double taps = 1;
    for (const std::int64_t k : geometry.kernel) taps *= static_cast<double>(k);
    return taps * static_cast<double>(outputs[0].shape.elems());
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape&) const override {
    return axes_kept(inputs.size(), {0, 1});
  }

 private:
  static constexpr std::int64_t most_taps = 1 << 22;  // whose sum of differences of codes fits an int32
};

struct Pool {
  const QuantizedAveragePool& op;
  PoolProblem problem;
  std::uint8_t flip;
  std::int32_t zero_point;  ///< of flipped codes

  /// How a sum of codes of a window with these taps becomes a code.
  BlendedCodes codes(const std::array<PoolTaps, 3>& taps) const {
    std::int64_t inside = 1, padded = 1;
    for (const PoolTaps& along : taps) inside *= along.count, padded *= along.padded;
    const std::int64_t count = std::max<std::int64_t>(1, op.counts_pads ? padded : inside);
    const double scale = static_cast<double>(op.x.scale) / op.y.scale / static_cast<double>(count);
    return {.zero = static_cast<float>(inside * op.x.zero_point),
            .factor = static_cast<float>(scale),
            .zero_point = op.y.zero_point,
            .least = op.y.least,
            .most = op.y.most,
            .type = op.y.type};
  }
  /// Codes of the sums of `channels` windows with these taps.
  void store(const std::array<PoolTaps, 3>& taps, const std::int32_t* sums, std::int64_t channels,
             std::uint8_t* y) const {
    std::int64_t inside = 1, padded = 1;
    for (const PoolTaps& along : taps) inside *= along.count, padded *= along.padded;
    const std::int64_t count = std::max<std::int64_t>(1, op.counts_pads ? padded : inside);
    const double scale = static_cast<double>(op.x.scale) / op.y.scale / static_cast<double>(count);
    codes_of_sums(sums, channels, static_cast<std::int32_t>(inside) * zero_point, static_cast<float>(scale), op.y, y);
  }
};

/// Taps of a window that are added up in float32, which is exact.
constexpr std::int64_t few_taps = 64;

/// An output line in nhwc, of windows of few taps.
void pool_line_of_few(const Pool& pool, const std::uint8_t* image, std::array<PoolTaps, 3> taps, std::uint8_t* y) {
  const PoolProblem& p = pool.problem;
  const PoolAxis &high = p.axes[1], &wide = p.axes[2];
  const DType type = pool.flip != 0 ? DType::i8 : DType::u8;
  std::array<BlendTap, few_taps> blend{};
  for (std::int64_t q = 0; q < wide.out; ++q) {
    taps[2] = wide.taps(q);
    std::int64_t count = 0;
    for (std::int64_t r = 0; r < taps[1].count; ++r)
      for (std::int64_t s = 0; s < taps[2].count; ++s)
        blend[static_cast<std::size_t>(count++)].offset =
            ((taps[1].first + r * high.dilation) * wide.in + taps[2].first + s * wide.dilation) * p.c;
    blend_codes(type, image, blend.data(), count, p.c, pool.codes(taps), y + q * p.c);
  }
}

/// An output line in nhwc: of each window, some channels at a time, whole cache lines.
void pool_line_nhwc(const Pool& pool, const std::uint8_t* image, std::array<PoolTaps, 3> taps, std::uint8_t* y) {
  constexpr std::int64_t most = 256;
  const PoolProblem& p = pool.problem;
  const PoolAxis &high = p.axes[1], &wide = p.axes[2];
  for (std::int64_t q = 0; q < wide.out; ++q) {
    taps[2] = wide.taps(q);
    for (std::int64_t first = 0; first < p.c; first += most) {
      const std::int64_t channels = std::min(most, p.c - first);
      std::int32_t sums[most] = {}, row[most];
      for (std::int64_t r = 0; r < taps[1].count && taps[2].count > 0; ++r) {
        const std::int64_t pixel = (taps[1].first + r * high.dilation) * wide.in + taps[2].first;
        sum_pixels(image + pixel * p.c + first, taps[2].count, wide.dilation * p.c, channels, pool.flip, row);
        for (std::int64_t c = 0; c < channels; ++c) sums[c] += row[c];
      }
      pool.store(taps, sums, channels, y + q * p.c + first);
    }
  }
}

/// The same in nchw, of one plane.
void pool_line_nchw(const Pool& pool, const std::uint8_t* plane, std::array<PoolTaps, 3> taps, std::uint8_t* y) {
  const PoolAxis &deep = pool.problem.axes[0], &high = pool.problem.axes[1], &wide = pool.problem.axes[2];
  for (std::int64_t q = 0; q < wide.out; ++q) {
    taps[2] = wide.taps(q);
    std::int32_t sum = 0;
    for (std::int64_t d = 0; d < taps[0].count; ++d)
      for (std::int64_t r = 0; r < taps[1].count; ++r) {
        const std::int64_t line = (taps[0].first + d * deep.dilation) * high.in + taps[1].first + r * high.dilation;
        const std::uint8_t* const from = plane + line * wide.in + taps[2].first;
        for (std::int64_t s = 0; s < taps[2].count; ++s) sum += from[s * wide.dilation] ^ pool.flip;
      }
    pool.store(taps, &sum, 1, y + q);
  }
}

std::unique_ptr<const BoundKernel> bind_pool(const Binding& binding) {
  const auto& op = binding.op<QuantizedAveragePool>();
  const DType type = binding.problem.inputs()[0].type.dtype;
  const Pool pool{op, resolve_pool(binding.shape(0), op.geometry), sign_flip(type),
                  op.x.zero_point + flipped_offset(type)};
  const bool nhwc = binding.format(0) == formats::nhwc;
  return bound([=](const KernelRun& run) {
    if (run.outputs[0].elems() == 0) return;
    const PoolProblem& p = pool.problem;
    const PoolAxis &deep = p.axes[0], &high = p.axes[1], &wide = p.axes[2];
    const std::int64_t planes = nhwc ? p.n : p.n * p.c, of_plane = p.in() * (nhwc ? p.c : 1),
                       of_line = wide.out * (nhwc ? p.c : 1), taps = deep.kernel * high.kernel * wide.kernel;
    const std::int64_t grain = std::max<std::int64_t>(1, 4 * elementwise_grain / taps / of_line);
    run.pool->parallel_for(planes * deep.out * high.out, grain, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t line = begin; line < end; ++line) {
        const std::uint8_t* const from = run.in<std::uint8_t>(0) + line / high.out / deep.out * of_plane;
        (!nhwc              ? pool_line_nchw
         : taps <= few_taps ? pool_line_of_few
                            : pool_line_nhwc)(pool, from,
                                              {deep.taps(line / high.out % deep.out), high.taps(line % high.out), {}},
                                              run.out<std::uint8_t>() + line * of_line);
      }
    });
  });
}

std::span<const Format> formats_for(const Problem& problem) {
  return problem.inputs()[0].type.shape.rank() == 4 ? std::span<const Format>(nchw_or_nhwc) : nchw_only;
}

constexpr SimpleKernel kernels[] = {{.types = dtypes<Int8Types>, .formats_for = formats_for, .bind = bind_pool}};

}  // namespace

OpParts quantized_average_pool() { return {make_from<QuantizedAveragePool>, kernels}; }

}  // namespace lenslet
