// MaxPool and AveragePool in 1, 2 and 3 dimensions.

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "ops/core/grain.h"
#include "ops/core/makers.h"
#include "ops/core/type_check.h"
#include "ops/pool/pool_cuda.h"
#include "ops/pool/pool_kernels.h"
#include "ops/reduce/reduce_cuda.h"

namespace lenslet {

namespace {

/// x [N,C,...] of rank 3 to 5. MaxPool: float32, int8, uint8; a second output gets the row-major index of each maximum
/// in the whole of x. AveragePool: float32.
class PoolOp final : public Op {
 public:
  PoolGeometry geometry;
  PoolKind kind = PoolKind::max;
  std::size_t outputs = 1;

  std::string_view type() const override { return kind == PoolKind::max ? "MaxPool" : "AveragePool"; }

  AttributeList attributes() const override {
    const std::size_t dims = geometry.kernel.size();
    const auto filled = [](const std::vector<std::int64_t>& list, std::size_t length, std::int64_t value) {
      return list.empty() ? std::vector<std::int64_t>(length, value) : list;
    };
    AttributeList list{{"kernel_shape", geometry.kernel},
                       {"strides", filled(geometry.strides, dims, 1)},
                       {"dilations", filled(geometry.dilations, dims, 1)},
                       {"pads", filled(geometry.pads, 2 * dims, 0)},
                       {"auto_pad", std::string(to_string(geometry.auto_pad))},
                       {"ceil_mode", std::int64_t{geometry.ceil_mode ? 1 : 0}}};
    if (kind != PoolKind::max)
      list.emplace_back("count_include_pad", std::int64_t{kind == PoolKind::average_with_pads ? 1 : 0});
    return list;
  }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& x = required_input(inputs, 0, "X");
    if (kind == PoolKind::max)
      require_dtype("input X", x.dtype, {DType::f32, DType::i8, DType::u8});
    else
      require_dtype("input X", x.dtype, {DType::f32});
    const TensorType y{x.dtype, pool_output(x.shape, resolve_pool(x.shape, geometry))};
    if (outputs > 1) return {y, {DType::i64, y.shape}};
    return {y};
  }

  bool runs_in(Format layout, std::span<const InputInfo> inputs) const override {
    return layout == formats::nchw ||
           (inputs[0].type.shape.rank() == 4 && inputs[0].type.dtype == DType::f32 && outputs == 1);
  }

  double flops(std::span<const InputInfo>, std::span<const TensorType> types) const override {
    double taps = 1;
    for (const std::int64_t k : geometry.kernel) taps *= static_cast<double>(k);
    return taps * static_cast<double>(types[0].shape.elems());
  }

  std::size_t workspace_bytes(const PlanContext& context) const override {
    const Shape& x = context.inputs[0].type.shape;
    if (context.device == DeviceKind::cuda) {
      if constexpr (cuda_built) {
        const PoolProblem p = resolve_pool(x, geometry);
        if (is_plane_mean(p))
          return cuda::reduce_workspace_bytes(plane_loops(p, lies_nhwc(x, context.input_layouts[0], context.layout)));
      }
      return 0;
    }
    if (x.rank() == 5 || lies_nhwc(x, context.input_layouts[0], context.layout)) return 0;
    return static_cast<std::size_t>(context.threads) * scratch_floats(x[x.rank() - 1]) * sizeof(float);
  }

  void run_cpu(const RunContext& context) const override {
    const Tensor& x = context.inputs[0];
    if (context.outputs[0].elems() == 0) return;
    if (x.dtype() == DType::i8) return run_plain<std::int8_t>(context);
    if (x.dtype() == DType::u8) return run_plain<std::uint8_t>(context);
    if (outputs > 1 || x.shape().rank() == 5) return run_plain<float>(context);
    run_lines(context);
  }

  std::optional<std::string> refuse_cuda(std::span<const InputInfo>) const override { return std::nullopt; }

  void run_cuda(const CudaRun& run) const override {
    if constexpr (cuda_built) {
      const Tensor& x = run.inputs[0];
      Tensor& y = run.outputs[0];
      const PoolProblem p = resolve_pool(x.shape(), geometry);
      const bool nhwc = x.dtype() == DType::f32 && outputs == 1 && lies_nhwc(x.shape(), x.format(), y.format());
      if (is_plane_mean(p))
        return cuda::reduce(run.context, ReduceKind::mean, DType::f32, plane_loops(p, nhwc), x.data(), y.data(),
                            run.workspace.data());
      auto* indices = outputs > 1 ? static_cast<std::int64_t*>(run.outputs[1].data()) : nullptr;
      cuda::pool(run.context, kind, p, x.dtype(), nhwc, x.data(), y.data(), indices);
    }
  }

 private:
  // An average over the whole image, as many classifiers end with: one thread would sum it up alone.
  bool is_plane_mean(const PoolProblem& p) const {
    if (kind == PoolKind::max) return false;
    for (int d = 0; d < 3; ++d) {
      const auto i = static_cast<std::size_t>(d);
      const PoolTaps taps = pool_taps(p, d, 0);
      if (p.out[i] != 1 || taps.count != p.in[i] || (kind == PoolKind::average_with_pads && taps.padded != taps.count))
        return false;
    }
    return true;
  }
  static reduce::Loops plane_loops(const PoolProblem& p, bool nhwc) {
    return reduce::plane_loops(p.n, p.c, p.in[0] * p.in[1] * p.in[2], nhwc);
  }

  // Where one of x and y has the same bytes in any layout, its label does not count.
  static bool lies_nhwc(const Shape& x, Format of_x, Format of_y) {
    return x.rank() == 4 && (of_x == formats::nhwc || of_y == formats::nhwc);
  }
  // Whole cache lines, so that threads do not share one.
  static std::size_t scratch_floats(std::int64_t width) { return (static_cast<std::size_t>(width) + 15) / 16 * 16; }

  void run_lines(const RunContext& context) const {
    const Tensor& x = context.inputs[0];
    const PoolProblem p = resolve_pool(x.shape(), geometry);
    const bool nhwc = lies_nhwc(x.shape(), x.format(), context.outputs[0].format());
    const float* x0 = x.values<float>().data();
    float* y0 = context.outputs[0].values<float>().data();
    auto* scratch = reinterpret_cast<float*>(context.workspace.data());
    const std::int64_t depth = nhwc ? p.c : 1, images = nhwc ? p.n : p.n * p.c;
    const std::int64_t in = p.in[1] * p.in[2] * depth, out = p.out[2] * depth;
    // A window may be larger than the image; only the taps inside are work.
    const std::int64_t taps = std::min(p.kernel[1], p.in[1]) * std::min(p.kernel[2], p.in[2]);
    const std::int64_t grain = std::max<std::int64_t>(1, (32 << 10) / std::max<std::int64_t>(1, taps) / out);
    context.pool.parallel_for(images * p.out[1], grain, [&](std::int64_t begin, std::int64_t end, int worker) {
      for (std::int64_t i = begin; i < end; ++i) {
        const float* image = x0 + i / p.out[1] * in;
        if (nhwc)
          pool_line_nhwc(kind, p, image, i % p.out[1], y0 + i * out);
        else
          pool_line_nchw(kind, p, image, i % p.out[1],
                         scratch + static_cast<std::size_t>(worker) * scratch_floats(p.in[2]), y0 + i * out);
      }
    });
  }

  // Any dimensions and types, row-major: as the definition reads.
  template <typename T>
  void run_plain(const RunContext& context) const {
    const Tensor& x = context.inputs[0];
    const PoolProblem p = resolve_pool(x.shape(), geometry);
    const T* x0 = x.values<T>().data();
    T* y0 = context.outputs[0].values<T>().data();
    std::int64_t* indices = outputs > 1 ? context.outputs[1].values<std::int64_t>().data() : nullptr;
    const std::int64_t in = p.in[0] * p.in[1] * p.in[2], out = p.out[0] * p.out[1] * p.out[2];
    context.pool.parallel_for(p.n * p.c, std::max<std::int64_t>(1, elementwise_grain / out),
                              [&](std::int64_t begin, std::int64_t end, int) {
                                for (std::int64_t plane = begin; plane < end; ++plane)
                                  for (std::int64_t i = 0; i < out; ++i) {
                                    std::int64_t index = 0;
                                    y0[plane * out + i] = window(p, x0 + plane * in, i, index);
                                    if (indices != nullptr) indices[plane * out + i] = plane * in + index;
                                  }
                              });
  }

  template <typename T>
  T window(const PoolProblem& p, const T* plane, std::int64_t out, std::int64_t& index) const {
    const PoolTaps d = pool_taps(p, 0, out / (p.out[1] * p.out[2]));
    const PoolTaps h = pool_taps(p, 1, out / p.out[2] % p.out[1]);
    const PoolTaps w = pool_taps(p, 2, out % p.out[2]);
    T top =
        std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::lowest();
    double sum = 0;
    bool found = false;
    for (std::int64_t i = 0; i < d.count; ++i)
      for (std::int64_t j = 0; j < h.count; ++j)
        for (std::int64_t k = 0; k < w.count; ++k) {
          const std::int64_t at = ((d.first + i * p.dilation[0]) * p.in[1] + h.first + j * p.dilation[1]) * p.in[2] +
                                  w.first + k * p.dilation[2];
          sum += static_cast<double>(plane[at]);
          if (found && !(plane[at] > top)) continue;
          found = true;
          top = plane[at];
          index = at;
        }
    if (kind == PoolKind::max) return top;
    const auto product = [](std::int64_t a, std::int64_t b, std::int64_t c) {
      return static_cast<double>(a) * static_cast<double>(b) * static_cast<double>(c);
    };
    const double count =
        kind == PoolKind::average ? product(d.count, h.count, w.count) : product(d.padded, h.padded, w.padded);
    return static_cast<T>(sum / std::max(1.0, count));
  }
};

std::shared_ptr<PoolOp> parse(AttributeReader& reader) {
  auto op = std::make_shared<PoolOp>();
  op->geometry.kernel = reader.integers("kernel_shape");
  if (op->geometry.kernel.empty()) throw Error(ErrorKind::invalid_model, "attribute 'kernel_shape' is missing");
  op->geometry.strides = reader.integers("strides");
  op->geometry.dilations = reader.integers("dilations");
  op->geometry.pads = reader.integers("pads");
  op->geometry.auto_pad = parse_auto_pad(reader.text("auto_pad", "NOTSET"));
  op->geometry.ceil_mode = reader.integer("ceil_mode", 0) != 0;
  return op;
}

}  // namespace

std::shared_ptr<const Op> make_max_pool(const NodeSpec& spec) {
  AttributeReader reader(spec.attributes);
  auto op = parse(reader);
  op->outputs = spec.outputs;
  if (reader.integer("storage_order", 0) != 0 && spec.outputs > 1)
    throw Error(ErrorKind::unsupported, "attribute 'storage_order' = 1 (column-major indices) is not supported");
  reader.finish();
  return op;
}

std::shared_ptr<const Op> make_average_pool(const NodeSpec& spec) {
  AttributeReader reader(spec.attributes);
  auto op = parse(reader);
  op->kind = reader.integer("count_include_pad", 0) != 0 ? PoolKind::average_with_pads : PoolKind::average;
  reader.finish();
  return op;
}

}  // namespace lenslet
