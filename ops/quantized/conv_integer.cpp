// ConvInteger, whose result is the int32 accumulators, and QLinearConv, which requantises them. A 3-D one is computed
// as a 2-D one over images that gather the input of one output depth (plane_images).

#include <fmt/format.h>

#include <algorithm>

#include "base/cuda_built.h"
#include "ops/conv/conv.h"
#include "ops/core/grain.h"
#include "ops/core/strided_copy.h"
#include "ops/movement/moves.h"
#include "ops/movement/strided_copy_cuda.h"
#include "ops/quantized/apart.h"
#include "ops/quantized/integer_depthwise.h"
#include "ops/quantized/integer_product_cuda.h"
#include "ops/quantized/quantized_op.h"

namespace lenslet {
namespace {

/// Inputs of ConvInteger: x, w, x_zero_point, w_zero_point (both optional). Of QLinearConv: x, x_scale, x_zero_point,
/// w, w_scale, w_zero_point, y_scale, y_zero_point, bias (optional, int32 in units of x_scale * w_scale). w's
/// parameters are per tensor or per output channel. attributes(): those of ConvGeometry.
class IntegerConvOp final : public Op {
 public:
  explicit IntegerConvOp(const NodeSpec& spec) : quantizes_(spec.name == "QLinearConv") {
    AttributeReader reader(spec);
    read_geometry(reader, geometry_, kernel_shape_, spatial_rank_);
    if (spec.normalised && !geometry_.volume) spatial_rank_ = 0;  // two entries a list, whatever the rank
    reader.finish();
  }

  std::string_view type() const override { return quantizes_ ? "QLinearConv" : "ConvInteger"; }
  AttributeList attributes() const override {
    AttributeList list;
    append_geometry(list, geometry_);
    return list;
  }
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const DType dtype = this->inputs().result_type(inputs);
    const ConvProblem p = problem(inputs);
    lines(inputs);
    if (present(inputs, this->inputs().bias)) require_shape("input B", inputs[8].type.shape, Shape{p.k});
    const Shape& x = inputs[0].type.shape;
    if (x.rank() == 5) return {{dtype, {x[0], p.k, depth(inputs).out, p.p, p.q}}};
    return {{dtype, x.rank() == 3 ? Shape{p.n, p.k, p.q} : Shape{p.n, p.k, p.p, p.q}}};
  }
  double flops(std::span<const InputInfo> inputs, std::span<const TensorType>) const override {
    return problem(inputs).flops();
  }
  std::string describe(std::span<const InputInfo> inputs) const override { return problem(inputs).str(); }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape&) const override {
    return axes_kept(inputs.size(), {0});
  }

  /// The left operand is w, with output channels as rows.
  IntegerInputs inputs() const {
    if (!quantizes_) return {.left = 1, .right = 0, .left_zero = 3, .right_zero = 2};
    return {.left = 3,
            .right = 0,
            .left_zero = 5,
            .right_zero = 2,
            .left_scale = 4,
            .right_scale = 1,
            .y_scale = 6,
            .y_zero = 7,
            .bias = 8};
  }

  /// For 3-D the problem of its images.
  ConvProblem problem(std::span<const InputInfo> inputs) const {
    const Shape &x = inputs[0].type.shape, &w = inputs[this->inputs().left].type.shape;
    const int rank = x.rank() - 2;
    if ((spatial_rank_ != 0 && spatial_rank_ != rank && rank >= 1 && rank <= 3))
      throw Error(ErrorKind::invalid_model,
                  fmt::format("convolution: attributes for {} spatial axes, input {}", spatial_rank_, x.str()));
    if (x.rank() == 5 && w.rank() != 5)
      throw Error(ErrorKind::invalid_model,
                  fmt::format("convolution: input {} and filter {} differ in rank", x.str(), w.str()));
    ConvProblem p = x.rank() == 5 ? resolve_conv(plane_images(x, depth(inputs)), plane_filters(w), geometry_)
                                  : resolve_conv(x, w, geometry_);
    for (std::size_t i = 0; i < kernel_shape_.size(); ++i)
      if (kernel_shape_[i] != w[static_cast<int>(i) + 2])
        throw Error(ErrorKind::invalid_model, fmt::format("convolution: kernel_shape [{}] contradicts filter {}",
                                                          fmt::join(kernel_shape_, ","), w.str()));
    p.bias = present(inputs, this->inputs().bias);
    return p;
  }

  DepthAxis depth(std::span<const InputInfo> inputs) const {
    const Shape &x = inputs[0].type.shape, &w = inputs[this->inputs().left].type.shape;
    const ConvProblem p = resolve_conv({x[0], x[1], x[2], 1}, {w[0], w[1], w[2], 1}, geometry_.of_depth());
    return {.in = p.h, .taps = p.r, .stride = p.stride_h, .dilation = p.dilation_h, .pad = p.pad_top, .out = p.p};
  }

  IntegerLines lines(std::span<const InputInfo> inputs) const {
    const ConvProblem p = problem(inputs);
    const auto lines = [&](std::size_t input, bool by_channel) {
      if (!present(inputs, input) || inputs[input].type.shape.elems() == 1) return Lines{};
      if (by_channel && inputs[input].type.shape == Shape{p.k}) return Lines{.step = 1, .matrix = p.group_k()};
      throw Error(ErrorKind::invalid_model,
                  fmt::format("a parameter of shape {} for {} output channels", inputs[input].type.shape.str(), p.k));
    };
    const IntegerInputs in = this->inputs();
    return {lines(in.left_zero, true), lines(in.right_zero, false), lines(in.left_scale, true),
            lines(in.right_scale, false)};
  }

 private:
  bool quantizes_;
  VolumeGeometry geometry_;
  std::vector<std::int64_t> kernel_shape_;  ///< as the file says it; empty: from w
  int spatial_rank_ = 0;                    ///< number of axes the attribute lists speak of; 0: none was given
};

/// Words per accumulator: over taps, then channels.
std::int64_t words(const ConvProblem& p) { return p.r * p.s * integer_words(p.group_c()); }

void pack_filters(const ConvProblem& p, const IntegerOperand& w, std::int64_t first, std::int64_t last,
                  std::int32_t* to) {
  const std::int64_t c = p.group_c(), taps = p.r * p.s;
  for (std::int64_t k = first; k < last; ++k)
    pack_integer_row(w, w.zero_point(0, k), w.data + k * c * taps, taps, c, to + k * integer_line(words(p)));
}

/// A matrix product whose right operand is packed panel by panel.
class BoundProduct final : public BoundKernel {
 public:
  explicit BoundProduct(const Binding& binding)
      : inputs_(binding.op<IntegerConvOp>().inputs()),
        p_(binding.op<IntegerConvOp>().problem(binding.problem.inputs())),
        lines_(binding.op<IntegerConvOp>().lines(binding.problem.inputs())),
        plane_(p_),
        apart_(p_.r * p_.s > 1 || !plane_.is_image()),
        known_(is_known(binding.problem.inputs(), inputs_.left, inputs_.left_zero)),
        threads_(binding.threads()) {}

  std::size_t workspace_bytes() const override {
    const std::int64_t own = known_ ? 0 : p_.k * integer_line(words(p_));
    return static_cast<std::size_t>(own + threads_ * panel_words() + (apart_ ? image_words() : 0)) *
           sizeof(std::int32_t);
  }

  void run(const KernelRun& run) const override {
    IntegerRun of(run, inputs_, lines_);
    of.result.bias_lines = {.step = 1, .matrix = p_.group_k()};
    auto* const panels = reinterpret_cast<std::int32_t*>(run.workspace.data());
    auto* at = panels + threads_ * panel_words();
    const auto* filters = reinterpret_cast<const std::int32_t*>(run.blob);
    if (!known_) {
      filters = at;
      run.pool->parallel_for(
          p_.k, 1, [&](std::int64_t begin, std::int64_t end, int) { pack_filters(p_, of.left, begin, end, at); });
      at += p_.k * integer_line(words(p_));
    }
    if (apart_) take_apart(run, of.right, at);
    // Columns are elements where outputs begin, in memory order, including those between two lines.
    const std::int64_t columns = integer_panel_columns(), wide = plane_.w.length, all = (p_.p - 1) * wide + p_.q;
    const std::int64_t in_plane = (all + columns - 1) / columns;
    run.pool->parallel_for(
        p_.n * p_.groups * in_plane, integer_grain(p_.group_k() * panel_words()),
        [&](std::int64_t begin, std::int64_t end, int worker) {
          std::int32_t* const panel = panels + worker * panel_words();
          for (std::int64_t item = begin; item < end; ++item) {
            const std::int64_t plane = item / in_plane, group = plane % p_.groups, first = item % in_plane * columns;
            const std::int64_t last = std::min(first + columns, all);
            pack(of.right, apart_ ? at : nullptr, plane, {0, first, last - first}, panel);
            multiply_rows(
                filters + group * p_.group_k() * integer_line(words(p_)), p_.group_k(), words(p_), panel,
                [&](std::int64_t i, std::int64_t count, std::int32_t* sums) {
                  // Drops those between the lines.
                  std::int64_t kept = 0;
                  for (std::int64_t line = first / wide; line * wide < last; ++line) {
                    const std::int64_t from = std::max(first, line * wide), to = std::min(last, line * wide + p_.q);
                    if (from >= to) continue;
                    if (kept != from - first)
                      for (std::int64_t row = 0; row < count * columns; row += columns)
                        std::copy(sums + row + (from - first), sums + row + (to - first), sums + row + kept);
                    kept += to - from;
                  }
                  const std::int64_t j = first / wide * p_.q + std::min(first % wide, p_.q), pixels = p_.p * p_.q;
                  store_integer_rows(of.result, sums, count, {group, 0, i, j}, kept,
                                     (plane * p_.group_k() + i) * pixels + j, pixels);
                });
          }
        });
  }

 private:
  std::int64_t panel_words() const { return integer_line(words(p_)) * integer_panel_columns(); }

  std::int64_t image_words() const {
    return p_.n * p_.groups * integer_words(p_.group_c()) * plane_.elems() + integer_panel_columns();
  }

  /// Packs images as planes of words, [n][group][channel word][plane]: once, not per tap.
  void take_apart(const KernelRun& run, const IntegerOperand& x, std::int32_t* to) const {
    const std::int64_t c = p_.group_c(), of_group = integer_words(c), size = p_.h * p_.w;
    const std::int64_t grain = std::max<std::int64_t>(1, elementwise_grain / plane_.elems());
    run.pool->parallel_for(p_.n * p_.groups * of_group, grain, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t first = i % of_group * integer_word_k(), terms = std::min(integer_word_k(), c - first);
        std::uint8_t bytes[4 * most_columns];
        std::int32_t outside[most_columns];
        std::fill(bytes, bytes + 4, x.zero == nullptr ? std::uint8_t{0} : *x.zero);
        pack_integer_panel(x, {0, 0, 1}, bytes, 1, terms, outside);
        lenslet::take_apart(plane_, 0, plane_.h.length, x.data + (i / of_group * c + first) * size, outside[0],
                            to + i * plane_.elems(),
                            [&](const std::uint8_t* from, std::int64_t step, std::int64_t count, std::int32_t* into) {
                              const std::int64_t columns = integer_panel_columns();
                              std::int32_t part[most_columns];
                              for (std::int64_t j = 0; j < count; j += columns) {
                                const PanelColumns own{0, 0, std::min(columns, count - j)};
                                // A whole panel is written; behind this plane begins the next, of another thread.
                                std::int32_t* const panel = own.count < columns ? part : into + j;
                                for (std::int64_t t = 0; step != 1 && t < terms; ++t)
                                  for (std::int64_t k = 0; k < own.count; ++k)
                                    bytes[t * columns + k] = from[t * size + (j + k) * step];
                                if (step == 1)
                                  pack_integer_panel(x, own, from + j, size, terms, panel);
                                else
                                  pack_integer_panel(x, own, bytes, columns, terms, panel);
                                if (panel == part) std::copy_n(part, own.count, into + j);
                              }
                            });
      }
    });
  }

  void pack(const IntegerOperand& x, const std::int32_t* image, std::int64_t plane, const PanelColumns& own,
            std::int32_t* to) const {
    const std::int64_t c = p_.group_c(), columns = integer_panel_columns(), of_group = integer_words(c);
    if (image == nullptr) {
      pack_integer_panel(x, own, x.data + plane * c * p_.h * p_.w + own.first, p_.h * p_.w, c, to);
    } else {
      std::int32_t* line = to;
      for (std::int64_t r = 0; r < p_.r; ++r)
        for (std::int64_t s = 0; s < p_.s; ++s) {
          const std::int32_t* const from =
              image + plane * of_group * plane_.elems() + plane_.first(r, s, plane_.h.length);
          copy_integer_words(from + own.first, plane_.elems(), of_group, own.count, line);
          line += of_group * columns;
        }
    }
    close_integer_panel(x, own, words(p_), to);
  }

  static constexpr std::int64_t most_columns = 64;

  IntegerInputs inputs_;
  ConvProblem p_;
  IntegerLines lines_;
  ApartPlane plane_;
  bool apart_;
  bool known_;
  int threads_;
};

/// Filters of one channel each, in float32: accumulators are integers below 2^24, so exact.
class BoundDepthwise final : public BoundKernel {
 public:
  explicit BoundDepthwise(const Binding& binding)
      : inputs_(binding.op<IntegerConvOp>().inputs()),
        p_(binding.op<IntegerConvOp>().problem(binding.problem.inputs())),
        lines_(binding.op<IntegerConvOp>().lines(binding.problem.inputs())),
        plane_(p_),
        threads_(binding.threads()) {
    // Output lines per block: their input should stay in L1.
    constexpr std::int64_t most_floats = 16 << 10;
    parts_ = plane_.elems() / std::max<std::int64_t>(1, plane_.h.length);
    block_ = std::clamp(most_floats / std::max<std::int64_t>(1, parts_) - more_lines(), std::min<std::int64_t>(4, p_.p),
                        p_.p);
    scratch_ = (parts_ * (block_ + more_lines()) + block_ * p_.q + 2 * integer_taps_slack + 15) / 16 * 16;
  }
  static bool takes(const ConvProblem& p) { return p.group_c() == 1 && p.r * p.s <= most_taps; }

  std::size_t workspace_bytes() const override { return static_cast<std::size_t>(threads_ * scratch_) * sizeof(float); }

  void run(const KernelRun& run) const override {
    IntegerRun of(run, inputs_, lines_);
    of.result.bias_lines = {.step = 1, .matrix = p_.group_k()};
    const std::int64_t blocks = (p_.p + block_ - 1) / block_, wide = plane_.w.length, taps = p_.r * p_.s;
    const int zero = of.right.zero_point(0, 0);
    run.pool->parallel_for(
        p_.n * p_.c * blocks, integer_grain(p_.group_k() * taps * block_ * p_.q),
        [&](std::int64_t begin, std::int64_t end, int worker) {
          float* const x = reinterpret_cast<float*>(run.workspace.data()) + worker * scratch_;
          std::int64_t at[most_taps];
          float weights[most_taps];
          for (std::int64_t item = begin; item < end; ++item) {
            const std::int64_t plane = item / blocks, group = plane % p_.groups, line = item % blocks * block_;
            const std::int64_t count = std::min(block_, p_.p - line), lines = count + more_lines();
            widen_integers(plane_, line, line + lines, of.right, zero, of.right.data + plane * p_.h * p_.w, x);
            std::fill_n(x + parts_ * lines, integer_taps_slack, 0.0F);
            for (std::int64_t t = 0; t < taps; ++t) at[t] = plane_.first(t / p_.s, t % p_.s, lines);
            auto* const sums = reinterpret_cast<std::int32_t*>(x + scratch_ - block_ * p_.q - integer_taps_slack);
            for (std::int64_t i = 0; i < p_.group_k(); ++i) {
              const std::int64_t k = group * p_.group_k() + i;
              widen_integers(of.left, of.left.zero_point(0, k), of.left.data + k * taps, taps, weights);
              sum_integer_taps({.x = x, .wide = wide, .at = at, .weights = weights, .taps = taps}, count, p_.q, sums);
              const std::int64_t j = line * p_.q;
              store_integer_rows(of.result, sums, 1, {group, 0, i, j}, count * p_.q,
                                 (plane * p_.group_k() + i) * p_.p * p_.q + j, 0);
            }
          }
        });
  }

 private:
  static constexpr std::int64_t most_taps = 256;

  /// Lines of a part that a tap reads beyond an output's own.
  std::int64_t more_lines() const { return plane_.h.length - p_.p; }

  IntegerInputs inputs_;
  ConvProblem p_;
  IntegerLines lines_;
  ApartPlane plane_;
  int threads_;
  std::int64_t parts_;  ///< elements that a line has in all parts of the plane
  std::int64_t block_, scratch_;
};

/// 3-D: gathers the images, then moves the results to their positions.
class BoundVolume final : public BoundKernel {
 public:
  BoundVolume(const Binding& binding, std::unique_ptr<const BoundKernel> planes)
      : planes_(std::move(planes)), zero_(binding.op<IntegerConvOp>().inputs().right_zero) {
    const auto& op = binding.op<IntegerConvOp>();
    const DepthAxis depth = op.depth(binding.problem.inputs());
    const ConvProblem p = op.problem(binding.problem.inputs());
    images_ = {p.n, p.c, p.h, p.w};
    results_ = {p.n, p.k, p.p, p.q};
    const std::int64_t images = p.h * p.w, channels = binding.shape(0)[1], n = binding.shape(0)[0];
    std::int64_t written = 0;
    for (std::int64_t tap = 0; tap < depth.taps; ++tap) {
      const std::int64_t shift = tap * depth.dilation - depth.pad;
      const std::int64_t first = shift < 0 ? (-shift + depth.stride - 1) / depth.stride : 0;
      const std::int64_t last = shift >= depth.in ? 0 : std::min(depth.out, (depth.in - 1 - shift) / depth.stride + 1);
      if (first >= last) continue;
      Copy copy{.from = (first * depth.stride + shift) * images, .to = (first * p.c + tap) * images};
      copy.loops.add(n, channels * depth.in * images, depth.out * p.c * images);
      copy.loops.add(last - first, depth.stride * images, p.c * images);
      copy.loops.add(channels, depth.in * images, depth.taps * images);
      copy.loops.add(images, 1, 1);
      written += copy.loops.count();
      gather_.push_back(copy);
    }
    fills_ = written != images_.elems();
    everywhere_.loops.add(images_.elems(), 0, 1);
    const std::int64_t pixels = p.p * p.q;
    scatter_.loops.add(n, depth.out * p.k * pixels, depth.out * p.k * pixels);
    scatter_.loops.add(p.k, pixels, depth.out * pixels);
    scatter_.loops.add(depth.out, p.k * pixels, pixels);
    scatter_.loops.add(pixels, 1, 1);
  }
  std::size_t workspace_bytes() const override {
    return aligned(images_.elems()) + aligned(results_.elems() * 4) + planes_->workspace_bytes();
  }

  void run(const KernelRun& run) const override {
    const DType of_y = run.outputs[0].dtype();
    std::byte *const x = run.workspace.data(), *const y = x + aligned(images_.elems());
    Tensor images = Tensor::view(run.inputs[0].dtype(), images_, x, formats::nchw);
    std::array<Tensor, 1> results{Tensor::view(of_y, results_, y, formats::nchw)};
    if (fills_) {
      if (run.in<std::byte>(zero_) == nullptr)
        fill(run, 0, images);
      else
        copy(run, 1, {&everywhere_, 1}, run.inputs[zero_].data(), x);
    }
    copy(run, 1, gather_, run.inputs[0].data(), x);
    std::array<Tensor, most_inputs> inputs;
    std::copy(run.inputs.begin(), run.inputs.end(), inputs.begin());
    inputs[0] = std::move(images);
    const std::size_t used = aligned(images_.elems()) + aligned(results_.elems() * 4);
    planes_->run({.inputs = std::span(inputs).first(run.inputs.size()),
                  .outputs = results,
                  .workspace = run.workspace.subspan(used),
                  .blob = run.blob,
                  .pool = run.pool,
                  .cuda = run.cuda});
    copy(run, dtype_bytes(of_y), {&scatter_, 1}, y, run.outputs[0].data());
  }

 private:
  static constexpr std::size_t most_inputs = 9;
  struct Copy {
    StridedLoops loops = {};
    std::int64_t from = 0, to = 0;  ///< elements
  };

  static std::size_t aligned(std::int64_t bytes) { return (static_cast<std::size_t>(bytes) + 255) / 256 * 256; }

  static void copy(const KernelRun& run, std::size_t bytes, std::span<const Copy> copies, const void* from, void* to) {
    const auto step = static_cast<std::int64_t>(bytes);
    const auto source = [&](const Copy& one) { return static_cast<const std::byte*>(from) + one.from * step; };
    const auto target = [&](const Copy& one) { return static_cast<std::byte*>(to) + one.to * step; };
    if constexpr (cuda_built)
      if (run.cuda != nullptr) {
        cuda::CopyBatch batch(*run.cuda, bytes);
        for (const Copy& one : copies) batch.add(one.loops, source(one), target(one));
        return batch.flush();
      }
    for (const Copy& one : copies) strided_copy(bytes, one.loops, source(one), target(one), *run.pool);
  }

  std::unique_ptr<const BoundKernel> planes_;
  std::size_t zero_;
  Shape images_, results_;
  std::vector<Copy> gather_;
  Copy everywhere_, scatter_;
  bool fills_ = false;
};

std::unique_ptr<const BoundKernel> as_volume(const Binding& binding, std::unique_ptr<const BoundKernel> planes) {
  if (binding.shape(0).rank() != 5) return planes;
  return std::make_unique<BoundVolume>(binding, std::move(planes));
}

/// True if filters are packed in the blob.
bool is_prepared(const Problem& node) {
  const auto& op = node.as<IntegerConvOp>();
  return is_known(node.inputs(), op.inputs().left, op.inputs().left_zero) &&
         !BoundDepthwise::takes(op.problem(node.inputs()));
}

std::unique_ptr<const BoundKernel> bind_cpu(const Binding& binding) {
  if (BoundDepthwise::takes(binding.op<IntegerConvOp>().problem(binding.problem.inputs())))
    return as_volume(binding, std::make_unique<BoundDepthwise>(binding));
  return as_volume(binding, std::make_unique<BoundProduct>(binding));
}

Offer offer(const Problem& node, const Target& target) {
  const IntegerInputs inputs = node.as<IntegerConvOp>().inputs();
  return offer_prepared(node, target,
                        is_prepared(node) ? input_bit(inputs.left) | input_bit(inputs.left_zero) : no_inputs, bind_cpu);
}

std::optional<BlobSpec> blob(const Problem& node, const Candidate&) {
  if (!is_prepared(node)) return std::nullopt;
  const ConvProblem p = node.as<IntegerConvOp>().problem(node.inputs());
  return BlobSpec{.key = fmt::format("terms={}", integer_word_k()),
                  .bytes = static_cast<std::size_t>(p.k * integer_line(words(p))) * sizeof(std::int32_t)};
}

void prepare(const Problem& node, const Candidate&, std::span<std::byte> blob) {
  const IntegerInputs inputs = node.as<IntegerConvOp>().inputs();
  Lines zeros = node.as<IntegerConvOp>().lines(node.inputs()).left_zero;
  const ConvProblem p = node.as<IntegerConvOp>().problem(node.inputs());
  pack_filters(p, operand_of(node, inputs.left, inputs.left_zero, zeros), 0, p.k,
               reinterpret_cast<std::int32_t*>(blob.data()));
}

std::unique_ptr<const BoundKernel> bind_cuda(const Binding& binding) {
  const auto& op = binding.op<IntegerConvOp>();
  const auto run_on = [p = op.problem(binding.problem.inputs()), lines = op.lines(binding.problem.inputs()),
                       inputs = op.inputs()](const KernelRun& run) {
    IntegerRun of(run, inputs, lines);
    of.result.bias_lines = {.step = 1, .matrix = p.group_k()};
    if constexpr (cuda_built) cuda::convolve_integers(*run.cuda, p, of.left, of.right, of.result);
  };
  return as_volume(binding, bound(run_on));
}

std::optional<std::string> refuse_cuda(const Problem& node) {
  const ConvProblem p = node.as<IntegerConvOp>().problem(node.inputs()), padded = p.with_explicit_padding();
  for (const std::int64_t elems :
       {padded.n * padded.c * padded.h * padded.w, p.k * p.group_c() * p.r * p.s, p.n * p.k * p.p * p.q})
    if (elems > cuda::most_integers) return "a tensor of more than 2^30 elements";
  return std::nullopt;
}

constexpr SimpleKernel kernels[] = {
    {.types = dtypes<Int8Types>, .offer = offer, .bind = bind_cpu, .blob = blob, .prepare = prepare},
    {.device = DeviceKind::cuda, .types = dtypes<Int8Types>, .refuse = refuse_cuda, .bind = bind_cuda}};

}  // namespace

OpParts conv_integer() { return {make_from<IntegerConvOp>, kernels}; }

}  // namespace lenslet
