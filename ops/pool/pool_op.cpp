// MaxPool, AveragePool and LpPool in 1, 2 and 3 dimensions.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/cuda_built.h"
#include "ops/core/checks.h"
#include "ops/core/grain.h"
#include "ops/core/row_kernel.h"
#include "ops/pool/pool_attributes.h"
#include "ops/pool/pool_kernels.h"
#include "ops/reduce/beats.h"
#include "ops/reduce/reduction.h"

namespace lenslet {

namespace {

/// x [N,C,...] of rank 3 to 5. MaxPool's second output is the index of each maximum in all of x. A NaN is the maximum
/// of its windows, the first of several NaN, on all devices and in all formats.
///
/// AveragePool has the normalised attribute `subtract_input`, which the pass fuse_pool_difference sets: y = residual +
/// scale[c] * (average - x), with the optional inputs scale [C] and residual, of x's shape; strides 1, y of x's shape.
class PoolOp final : public Op {
 public:
  PoolGeometry geometry;
  PoolKind kind = PoolKind::max;
  std::size_t outputs = 1;
  bool subtract_input = false;
  static constexpr std::size_t scale = 1, residual = 2;  ///< inputs

  std::string_view type() const override {
    return kind == PoolKind::max ? "MaxPool" : kind == PoolKind::lp ? "LpPool" : "AveragePool";
  }

  AttributeList attributes() const override {
    AttributeList list;
    append_geometry(list, geometry);
    if (kind == PoolKind::lp)
      list.emplace_back("p", geometry.norm);
    else if (kind == PoolKind::max)
      list.emplace_back("storage_order", std::int64_t{geometry.column_major});
    else
      list.emplace_back("count_include_pad", std::int64_t{kind == PoolKind::average_with_pads ? 1 : 0});
    if (subtract_input) list.emplace_back("subtract_input", std::int64_t{1});
    return list;
  }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& x = required_input(inputs, 0, "X");
    const TensorType y{x.dtype, pool_output(x.shape, resolve_pool(x.shape, geometry))};
    if (outputs > 1) return {y, {DType::i64, y.shape}};
    if (subtract_input) check_difference(inputs, y);
    return {y};
  }

  double flops(std::span<const InputInfo>, std::span<const TensorType> types) const override {
    double taps = 1;
    for (const std::int64_t k : geometry.kernel) taps *= static_cast<double>(k);
    return taps * static_cast<double>(types[0].shape.elems());
  }

  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape&) const override {
    AxisMap map = axes_kept(inputs.size(), {0, 1});
    if (inputs.size() > residual) map.inputs[residual] = map.inputs[0];
    return map;
  }

  /// True for one-element windows, one per element of x: exporters write adaptive pools to the input's own size so. An
  /// Lp norm would give |x|.
  bool gives_input_back(std::span<const InputInfo> inputs) const override {
    if (kind == PoolKind::lp || subtract_input) return false;
    const PoolProblem p = resolve_pool(inputs[0].type.shape, geometry);
    return std::all_of(std::begin(p.axes), std::end(p.axes), [](const PoolAxis& axis) {
      return axis.kernel == 1 && axis.pad_begin == 0 && axis.pad_end == 0 && axis.out == axis.in &&
             (axis.stride == 1 || axis.in == 1);
    });
  }

 private:
  void check_difference(std::span<const InputInfo> inputs, const TensorType& y) const {
    const TensorType& x = inputs[0].type;
    const bool steps = std::ranges::any_of(geometry.strides, [](std::int64_t stride) { return stride != 1; });
    if (steps || !(y.shape == x.shape))
      throw Error(ErrorKind::invalid_model,
                  fmt::format("an average of shape {} with strides has no difference to its input {}", y.shape.str(),
                              x.shape.str()));
    if (present(inputs, scale)) {
      require_shape("input scale", inputs[scale].type.shape, Shape{x.shape[1]});
      if (inputs[scale].type.dtype != DType::f32 && inputs[scale].type.dtype != x.dtype)
        throw Error(ErrorKind::invalid_model, fmt::format("input scale is {}", to_string(inputs[scale].type.dtype)));
    }
    if (present(inputs, residual) && !(inputs[residual].type == x))
      throw Error(ErrorKind::invalid_model,
                  fmt::format("input residual is {} {}, but X is {} {}", to_string(inputs[residual].type.dtype),
                              inputs[residual].type.shape.str(), to_string(x.dtype), x.shape.str()));
  }
};

/// Other norms are not vectorised.
constexpr std::int64_t most_norm = 2;

/// Vectorised with channels last in two dimensions, without indices; on CUDA for floats. The CPU's bfloat16 has that
/// alone.
template <typename Types>
std::span<const Format> formats_for(const Problem& problem) {
  const TensorType& x = problem.inputs()[0].type;
  if (x.dtype == DType::bf16 && !dtypes<Types>.contains(x.dtype)) return reduce::nhwc_only;
  if (x.shape.rank() == 4 && dtypes<Types>.contains(x.dtype) && problem.outputs().size() == 1 &&
      problem.as<PoolOp>().geometry.norm <= most_norm)
    return nchw_or_nhwc;
  return nchw_only;
}

struct Pool {
  PoolKind kind;
  PoolProblem problem;
  bool nhwc, indices, subtract_input;
  DType scale_dtype = DType::f32;
  PoolPixels pixel;  ///< nhwc

  explicit Pool(const Binding& binding)
      : kind(binding.op<PoolOp>().kind),
        problem(resolve_pool(binding.shape(0), binding.op<PoolOp>().geometry)),
        nhwc(binding.format(0).order == Format::Order::channels_last),
        indices(binding.problem.outputs().size() > 1),
        subtract_input(binding.op<PoolOp>().subtract_input) {
    const auto inputs = binding.problem.inputs();
    if (subtract_input && present(inputs, PoolOp::scale)) scale_dtype = inputs[PoolOp::scale].type.dtype;
    if (!nhwc) return;
    pixel = {element_strides(binding.shape(0), binding.format(0))[3],
             element_strides(binding.output_shape(), binding.output_format())[3]};
    if (subtract_input && present(inputs, PoolOp::residual))
      pixel.residual = element_strides(binding.shape(PoolOp::residual), binding.format(PoolOp::residual))[3];
  }
  PoolDifference difference(const KernelRun& run) const {
    if (!subtract_input) return {};
    return {true, run.in<std::byte>(PoolOp::scale), scale_dtype, run.in<std::byte>(PoolOp::residual)};
  }
  std::int64_t* where(const KernelRun& run) const { return indices ? run.out<std::int64_t>(1) : nullptr; }
};

/// Output lines per piece of a parallel loop. Windows may exceed the image; only the taps inside are work.
std::int64_t line_grain(const PoolProblem& p, std::int64_t elements) {
  std::int64_t taps = 1;
  for (const PoolAxis& axis : p.axes) taps *= std::min(axis.kernel, std::max<std::int64_t>(1, axis.in));
  return std::max<std::int64_t>(1, (32 << 10) / taps / elements);
}

/// In nhwc: by lines, on all threads or apart. T: float or bfloat16.
template <typename T>
class PoolNhwc final : public BoundKernel, private RowKernel {
 public:
  explicit PoolNhwc(const Pool& pool) : pool_(pool) {}

  void run(const KernelRun& run) const override {
    const RowShape x = x_shape(), y = y_shape();
    if (run.outputs[0].elems() == 0) return;
    run.pool->parallel_for(y.images * y.rows, line_grain(pool_.problem, pool_.problem.axes[2].out * pool_.problem.c),
                           [&](std::int64_t begin, std::int64_t end, int) {
                             for (std::int64_t i = begin; i < end; ++i)
                               compute_line(run, image_of(run.in<T>(0), x, i / y.rows), i % y.rows, i,
                                            run.out<T>() + i * y.row_floats);
                           });
  }
  /// By rows only without a difference, which reads x at its own row too, and the residual.
  const RowKernel* row_kernel() const override {
    return std::is_same_v<T, float> && !pool_.subtract_input ? this : nullptr;
  }

 private:
  RowShape x_shape() const override {
    return {pool_.problem.n, pool_.problem.axes[1].in, pool_.problem.axes[2].in * pool_.pixel.x};
  }
  RowShape y_shape() const override {
    return {pool_.problem.n, pool_.problem.axes[1].out, pool_.problem.axes[2].out * pool_.pixel.y};
  }
  Rows reads(Rows rows) const override {
    if (rows.count() <= 0) return {};
    // Over all taps: with a dilation the first row may begin behind the next one, whose first tap is inside.
    const PoolAxis& high = pool_.problem.axes[1];
    const auto inside = [&](std::int64_t row) { return std::clamp<std::int64_t>(row, 0, high.in); };
    return {inside(rows.begin * high.stride - high.pad_begin),
            inside((rows.end - 1) * high.stride - high.pad_begin + (high.kernel - 1) * high.dilation + 1)};
  }
  void run_rows(const KernelRun& run, const ImageRows& rows) const override {
    if constexpr (std::is_same_v<T, float>)
      for (std::int64_t line = rows.rows.begin; line < rows.rows.end; ++line)
        compute_line(run, rows.x, line, rows.image * pool_.problem.axes[1].out + line, rows.y.at(line));
  }

  /// `line` of its image, which is `line_of_all` of all images.
  void compute_line(const KernelRun& run, const RowMemory<const T>& x, std::int64_t line, std::int64_t line_of_all,
                    T* y) const {
    const PoolProblem& p = pool_.problem;
    const PoolTaps taps = p.axes[1].taps(line);
    const T* const first = taps.count == 0 ? x.data : x.at(taps.first);
    if (!pool_.subtract_input) return pool_line_nhwc(pool_.kind, p, first, line, y, pool_.pixel);
    const T* const residual = run.in<T>(PoolOp::residual);
    pool_line_nhwc(pool_.kind, p, first, line, y, pool_.pixel,
                   {x.at(line), run.in<float>(PoolOp::scale),
                    residual == nullptr ? nullptr : residual + line_of_all * p.axes[2].out * pool_.pixel.residual});
  }

  Pool pool_;
};

/// Maxima of bytes in nhwc.
void run_bytes(const Pool& pool, const KernelRun& run) {
  const PoolProblem& p = pool.problem;
  const PoolAxis &high = p.axes[1], &wide = p.axes[2];
  const DType dtype = run.inputs[0].dtype();
  run.pool->parallel_for(p.n * high.out, line_grain(p, wide.out * p.c), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const PoolTaps taps = high.taps(i % high.out);
      const std::int64_t row = i / high.out * high.in + (taps.count == 0 ? 0 : taps.first);
      max_line_nhwc(p, dtype, run.in<std::uint8_t>(0) + row * wide.in * pool.pixel.x, i % high.out,
                    run.out<std::uint8_t>() + i * wide.out * pool.pixel.y, pool.pixel);
    }
  });
}

/// Averages in y, lines [begin, end), become what the difference makes of them.
void subtract_input(const PoolProblem& p, const KernelRun& run, std::int64_t begin, std::int64_t end) {
  const std::int64_t plane = p.axes[0].out * p.axes[1].out, length = p.axes[2].out;
  const float *const scale = run.in<float>(PoolOp::scale), *const residual = run.in<float>(PoolOp::residual);
  while (begin < end) {
    const std::int64_t here = std::min(end, (begin / plane + 1) * plane), first = begin * length;
    const std::int64_t channel = begin / plane % p.c;
    subtract_pool_input({run.in<float>(0) + first, scale == nullptr ? nullptr : scale + channel,
                         residual == nullptr ? nullptr : residual + first},
                        (here - begin) * length, run.out<float>() + first);
    begin = here;
  }
}

void run_nchw(const PoolLines& lines, bool difference, const KernelRun& run) {
  const PoolProblem& p = lines.problem;
  auto* const scratch = reinterpret_cast<float*>(run.workspace.data());
  run.pool->parallel_for(p.n * p.c * p.axes[0].out * p.axes[1].out, line_grain(p, p.axes[2].out),
                         [&](std::int64_t begin, std::int64_t end, int worker) {
                           pool_lines_nchw(lines, run.inputs[0].dtype(), run.inputs[0].data(), begin, end,
                                           scratch + worker * lines.scratch_floats, run.outputs[0].data());
                           if (difference) subtract_input(p, run, begin, end);
                         });
}

// One output by the definition; `index` receives the maximum's position in the plane.
template <typename T>
T window(const Pool& pool, const T* plane, const PoolTaps& d, const PoolTaps& h, const PoolTaps& w,
         std::int64_t& index) {
  const PoolAxis &deep = pool.problem.axes[0], &high = pool.problem.axes[1], &wide = pool.problem.axes[2];
  const auto each = [&](const auto& f) {
    for (std::int64_t i = 0; i < d.count; ++i)
      for (std::int64_t j = 0; j < h.count; ++j) {
        const std::int64_t line = (d.first + i * deep.dilation) * high.in + h.first + j * high.dilation;
        for (std::int64_t k = 0; k < w.count; ++k) f(line * wide.in + w.first + k * wide.dilation);
      }
  };
  if (pool.kind == PoolKind::max) {
    T top = reduce::least_value<T>;
    bool found = false;
    each([&](std::int64_t at) {
      // Branch-free: the winner is unpredictable.
      const T value = plane[at];
      const bool wins = !found || beats(value, top);
      top = wins ? value : top;
      index = wins ? at : index;
      found = true;
    });
    return top;
  }
  // For floats only norms without vector versions get here.
  const auto norm = static_cast<double>(pool.problem.norm);
  double sum = 0;
  each([&](std::int64_t at) { sum += std::pow(std::fabs(static_cast<double>(plane[at])), norm); });
  return static_cast<T>(std::pow(sum, 1 / norm));
}

// Maxima with indices, and any norm.
template <typename T>
void run_plain(const Pool& pool, const KernelRun& run) {
  const PoolProblem& p = pool.problem;
  const PoolAxis &deep = p.axes[0], &high = p.axes[1], &wide = p.axes[2];
  const T* const x = run.in<T>(0);
  T* const y = run.out<T>();
  std::int64_t* const where = pool.where(run);
  run.pool->parallel_for(p.n * p.c * deep.out * high.out, line_grain(p, wide.out),
                         [&](std::int64_t begin, std::int64_t end, int) {
                           for (std::int64_t line = begin; line < end; ++line) {
                             const std::int64_t plane = line / high.out / deep.out * p.in();
                             const PoolTaps d = deep.taps(line / high.out % deep.out), h = high.taps(line % high.out);
                             for (std::int64_t q = 0; q < wide.out; ++q) {
                               std::int64_t index = 0;
                               y[line * wide.out + q] = window(pool, x + plane, d, h, wide.taps(q), index);
                               if (where != nullptr) where[line * wide.out + q] = plane + p.numbered(index);
                             }
                           }
                         });
}

std::unique_ptr<const BoundKernel> bind_cpu(const Binding& binding) {
  const Pool pool(binding);
  const auto nonempty = [](const auto& run_on) {
    return [=](const KernelRun& run) {
      if (run.outputs[0].elems() != 0) run_on(run);
    };
  };
  if (pool.indices || pool.problem.norm > most_norm)
    return bound(nonempty([=](const KernelRun& run) {
      dispatch(run.inputs[0].dtype(), PoolTypes(), [&]<typename T>(std::type_identity<T>) { run_plain<T>(pool, run); });
    }));
  const DType dtype = binding.problem.inputs()[0].type.dtype;
  if (dtype == DType::bf16) return std::make_unique<PoolNhwc<BFloat16>>(pool);
  if (pool.nhwc && dtype != DType::f32) return bound(nonempty([=](const KernelRun& run) { run_bytes(pool, run); }));
  if (pool.nhwc) return std::make_unique<PoolNhwc<float>>(pool);
  const PoolLines lines(pool.kind, pool.problem);
  const std::int64_t scratch = binding.threads() * lines.scratch_floats;
  return bound(nonempty([=](const KernelRun& run) { run_nchw(lines, pool.subtract_input, run); }),
               static_cast<std::size_t>(scratch) * sizeof(float));
}

// True for an average over the whole image, as in many classifiers: a single thread would sum it.
bool is_plane_mean(const Pool& pool) {
  return !pool.subtract_input && (pool.kind == PoolKind::average || pool.kind == PoolKind::average_with_pads) &&
         std::all_of(std::begin(pool.problem.axes), std::end(pool.problem.axes), [&](const PoolAxis& axis) {
           const PoolTaps taps = axis.taps(0);
           return axis.out == 1 && taps.count == axis.in &&
                  (pool.kind == PoolKind::average || taps.padded == taps.count);
         });
}

std::unique_ptr<const BoundKernel> bind_cuda(const Binding& binding) {
  const Pool pool(binding);
  const PoolProblem& p = pool.problem;
  if (is_plane_mean(pool))
    return reduce::on_cuda(ReduceKind::mean, binding.problem.inputs()[0].type.dtype,
                           pool.nhwc ? reduce::plane_loops(p.n, p.c, p.in(), true, {pool.pixel.x, pool.pixel.y})
                                     : reduce::plane_loops(p.n, p.c, p.in(), false));
  return bound([pool = Pool(binding)](const KernelRun& run) {
    if constexpr (cuda_built)
      cuda::pool(*run.cuda, pool.kind, pool.problem, run.inputs[0].dtype(), pool.nhwc, pool.pixel, run.inputs[0].data(),
                 run.outputs[0].data(), pool.where(run), pool.difference(run));
  });
}

std::optional<std::string> refuse_cpu(const Problem& problem) {
  if (present(problem.inputs(), PoolOp::scale) && problem.inputs()[PoolOp::scale].type.dtype != DType::f32)
    return "a scale other than float32";
  if (problem.inputs()[0].type.dtype != DType::bf16) return std::nullopt;
  if (problem.shape(0).rank() != 4) return "bfloat16 of other than two dimensions";
  if (problem.outputs().size() > 1) return "bfloat16 with indices";
  return std::nullopt;
}

constexpr auto kernels_for(DTypeSet types) {
  auto kernels = on_both({.types = types,
                          .more_on_cuda = dtypes<HalfTypes>,
                          .formats_for = formats_for<PoolTypes>,
                          .tolerance = 2e-6,
                          .pitched_inputs = input_bit(0),
                          .pitched_output = true,
                          .skips_padding = true},
                         bind_cpu, bind_cuda);
  kernels[0].refuse = refuse_cpu;
  kernels[1].formats_for = formats_for<WithHalves<Types<float>>>;
  return kernels;
}
constexpr auto max_kernels = kernels_for(with_brain(dtypes<PoolTypes>)),
               average_kernels = kernels_for(dtypes<WithBrain<Types<float>>>),
               norm_kernels = kernels_for(dtypes<Types<float>>);

std::shared_ptr<const Op> make(const NodeSpec& spec) {
  auto op = std::make_shared<PoolOp>();
  AttributeReader reader(spec);
  op->geometry = read_pool_geometry(reader);
  op->outputs = spec.outputs;
  if (spec.name == "AveragePool") {
    op->kind = reader.flag("count_include_pad", false) ? PoolKind::average_with_pads : PoolKind::average;
    if (spec.normalised) op->subtract_input = reader.flag("subtract_input", false);
  } else if (spec.name == "LpPool") {
    op->kind = PoolKind::lp;
    op->geometry.norm = reader.integer("p", 2);
    if (op->geometry.norm < 1)
      throw Error(ErrorKind::invalid_model, fmt::format("attribute 'p' = {}", op->geometry.norm));
  } else {
    op->geometry.column_major = reader.flag("storage_order", false);
  }
  reader.finish();
  return op;
}

}  // namespace

OpParts max_pool() { return {make, max_kernels}; }
OpParts average_pool() { return {make, average_kernels}; }
OpParts lp_pool() { return {make, norm_kernels}; }

}  // namespace lenslet
