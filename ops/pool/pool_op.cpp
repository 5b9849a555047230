// MaxPool, AveragePool and LpPool in 1, 2 and 3 dimensions.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ops/core/checks.h"
#include "ops/core/grain.h"
#include "ops/pool/pool_kernels.h"
#include "ops/reduce/beats.h"
#include "ops/reduce/reduction.h"

namespace lenslet {

namespace {

/// x [N,C,...] of rank 3 to 5. A second output of MaxPool gets the index of each maximum in the whole of x. A
/// NaN is the maximum of each window that holds one, the first NaN of several, on every device and in every format.
class PoolOp final : public Op {
 public:
  PoolGeometry geometry;
  PoolKind kind = PoolKind::max;
  std::size_t outputs = 1;

  std::string_view type() const override {
    return kind == PoolKind::max ? "MaxPool" : kind == PoolKind::lp ? "LpPool" : "AveragePool";
  }

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
    if (kind == PoolKind::lp)
      list.emplace_back("p", geometry.norm);
    else if (kind == PoolKind::max)
      list.emplace_back("storage_order", std::int64_t{geometry.column_major});
    else
      list.emplace_back("count_include_pad", std::int64_t{kind == PoolKind::average_with_pads ? 1 : 0});
    return list;
  }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& x = required_input(inputs, 0, "X");
    const TensorType y{x.dtype, pool_output(x.shape, resolve_pool(x.shape, geometry))};
    if (outputs > 1) return {y, {DType::i64, y.shape}};
    return {y};
  }

  double flops(std::span<const InputInfo>, std::span<const TensorType> types) const override {
    double taps = 1;
    for (const std::int64_t k : geometry.kernel) taps *= static_cast<double>(k);
    return taps * static_cast<double>(types[0].shape.elems());
  }

  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape&) const override {
    return axes_kept(inputs.size(), {0, 1});
  }
};

/// There are no vectors for other norms.
constexpr std::int64_t most_norm = 2;

/// With the channels last there are vectors in two dimensions, of float32 and without indices.
std::span<const Format> formats_for(const Problem& problem) {
  const TensorType& x = problem.inputs()[0].type;
  if (x.shape.rank() == 4 && x.dtype == DType::f32 && problem.outputs().size() == 1 &&
      problem.as<PoolOp>().geometry.norm <= most_norm)
    return nchw_or_nhwc;
  return nchw_only;
}

struct Pool {
  PoolKind kind;
  PoolProblem problem;
  bool nhwc, indices;

  explicit Pool(const Binding& binding)
      : kind(binding.op<PoolOp>().kind),
        problem(resolve_pool(binding.shape(0), binding.op<PoolOp>().geometry)),
        nhwc(binding.format(0) == formats::nhwc),
        indices(binding.problem.outputs().size() > 1) {}
  std::int64_t* where(const KernelRun& run) const { return indices ? run.out<std::int64_t>(1) : nullptr; }
};

// float32 in one or two dimensions, line by line. `scratch_floats` a thread in nchw.
void run_lines(const Pool& pool, std::size_t scratch_floats, const KernelRun& run) {
  const PoolProblem& p = pool.problem;
  const PoolAxis &high = p.axes[1], &wide = p.axes[2];
  const float* x0 = run.inputs[0].values<float>().data();
  float* y0 = run.outputs[0].values<float>().data();
  auto* scratch = reinterpret_cast<float*>(run.workspace.data());
  const std::int64_t depth = pool.nhwc ? p.c : 1, images = pool.nhwc ? p.n : p.n * p.c;
  const std::int64_t in = p.in() * depth, out = wide.out * depth;
  // A window may be larger than the image; only the taps inside are work.
  const std::int64_t taps = std::min(high.kernel, high.in) * std::min(wide.kernel, wide.in);
  const std::int64_t grain = std::max<std::int64_t>(1, (32 << 10) / std::max<std::int64_t>(1, taps) / out);
  run.pool->parallel_for(images * high.out, grain, [&](std::int64_t begin, std::int64_t end, int worker) {
    for (std::int64_t i = begin; i < end; ++i) {
      const float* image = x0 + i / high.out * in;
      if (pool.nhwc)
        pool_line_nhwc(pool.kind, p, image, i % high.out, y0 + i * out);
      else
        pool_line_nchw(pool.kind, p, image, i % high.out, scratch + static_cast<std::size_t>(worker) * scratch_floats,
                       y0 + i * out);
    }
  });
}

template <typename T>
T window(const Pool& pool, const T* plane, std::int64_t out, std::int64_t& index) {
  const PoolAxis &deep = pool.problem.axes[0], &high = pool.problem.axes[1], &wide = pool.problem.axes[2];
  const PoolTaps d = deep.taps(out / (high.out * wide.out));
  const PoolTaps h = high.taps(out / wide.out % high.out);
  const PoolTaps w = wide.taps(out % wide.out);
  T top = reduce::least_value<T>;
  const auto norm = static_cast<double>(pool.problem.norm);
  double sum = 0;
  bool found = false;
  for (std::int64_t i = 0; i < d.count; ++i)
    for (std::int64_t j = 0; j < h.count; ++j)
      for (std::int64_t k = 0; k < w.count; ++k) {
        const std::int64_t at = ((d.first + i * deep.dilation) * high.in + h.first + j * high.dilation) * wide.in +
                                w.first + k * wide.dilation;
        const auto value = static_cast<double>(plane[at]);
        sum += pool.kind == PoolKind::lp ? std::pow(std::fabs(value), norm) : value;
        if (found && !beats(plane[at], top)) continue;
        found = true;
        top = plane[at];
        index = at;
      }
  if (pool.kind == PoolKind::max) return top;
  if (pool.kind == PoolKind::lp) return static_cast<T>(std::pow(sum, 1 / norm));
  const auto product = [](std::int64_t a, std::int64_t b, std::int64_t c) {
    return static_cast<double>(a) * static_cast<double>(b) * static_cast<double>(c);
  };
  const double count =
      pool.kind == PoolKind::average ? product(d.count, h.count, w.count) : product(d.padded, h.padded, w.padded);
  return static_cast<T>(sum / std::max(1.0, count));
}

// Any dimensions and types, row-major: as the definition reads.
template <typename T>
void run_plain(const Pool& pool, const KernelRun& run) {
  const T* x0 = run.inputs[0].values<T>().data();
  T* y0 = run.outputs[0].values<T>().data();
  std::int64_t* where = pool.where(run);
  const std::int64_t planes = pool.problem.n * pool.problem.c, in = pool.problem.in(), out = pool.problem.out();
  const std::int64_t grain = std::max<std::int64_t>(1, elementwise_grain / out);
  run.pool->parallel_for(planes, grain, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t plane = begin; plane < end; ++plane)
      for (std::int64_t i = 0; i < out; ++i) {
        std::int64_t index = 0;
        y0[plane * out + i] = window(pool, x0 + plane * in, i, index);
        if (where != nullptr) where[plane * out + i] = plane * in + pool.problem.numbered(index);
      }
  });
}

std::unique_ptr<const BoundKernel> bind_cpu(const Binding& binding) {
  const Pool pool(binding);
  const bool plain = binding.problem.inputs()[0].type.dtype != DType::f32 || pool.indices ||
                     binding.shape(0).rank() == 5 || pool.problem.norm > most_norm;
  // Whole cache lines, so that threads do not share one.
  const std::size_t scratch_floats =
      plain || pool.nhwc ? 0 : (static_cast<std::size_t>(pool.problem.axes[2].in) + 15) / 16 * 16;
  const auto run_on = [=](const KernelRun& run) {
    if (run.outputs[0].elems() == 0) return;
    if (!plain) return run_lines(pool, scratch_floats, run);
    dispatch(run.inputs[0].dtype(), PoolTypes(), [&]<typename T>(std::type_identity<T>) { run_plain<T>(pool, run); });
  };
  return bound(run_on, static_cast<std::size_t>(binding.threads()) * scratch_floats * sizeof(float));
}

// An average over the whole image, as many classifiers end with: one thread would sum it up alone.
bool is_plane_mean(const Pool& pool) {
  return (pool.kind == PoolKind::average || pool.kind == PoolKind::average_with_pads) &&
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
    return reduce::on_cuda(ReduceKind::mean, DType::f32, reduce::plane_loops(p.n, p.c, p.in(), pool.nhwc));
  return bound([pool = Pool(binding)](const KernelRun& run) {
    if constexpr (cuda_built)
      cuda::pool(*run.cuda, pool.kind, pool.problem, run.inputs[0].dtype(), pool.nhwc, run.inputs[0].data(),
                 run.outputs[0].data(), pool.where(run));
  });
}

constexpr auto kernels_for(DTypeSet types) {
  return on_both({.types = types, .formats_for = formats_for, .tolerance = 2e-6}, bind_cpu, bind_cuda);
}
constexpr auto max_kernels = kernels_for(dtypes<PoolTypes>), float_kernels = kernels_for(dtypes<Types<float>>);

std::shared_ptr<const Op> make(const NodeSpec& spec) {
  auto op = std::make_shared<PoolOp>();
  AttributeReader reader(spec);
  op->geometry.kernel = reader.integers("kernel_shape");
  if (op->geometry.kernel.empty()) throw Error(ErrorKind::invalid_model, "attribute 'kernel_shape' is missing");
  op->geometry.strides = reader.integers("strides");
  op->geometry.dilations = reader.integers("dilations");
  op->geometry.pads = reader.integers("pads");
  op->geometry.auto_pad = parse_auto_pad(reader.text("auto_pad", "NOTSET"));
  op->geometry.ceil_mode = reader.flag("ceil_mode", false);
  op->outputs = spec.outputs;
  if (spec.name == "AveragePool") {
    op->kind = reader.flag("count_include_pad", false) ? PoolKind::average_with_pads : PoolKind::average;
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
OpParts average_pool() { return {make, float_kernels}; }
OpParts lp_pool() { return {make, float_kernels}; }

}  // namespace lenslet
