// ConvInteger, whose int32 sums are the result, and QLinearConv, which quantises them again: 1-D and 2-D.

#include <fmt/format.h>

#include <algorithm>

#include "ops/conv/conv.h"
#include "ops/quantized/integer_product_cuda.h"
#include "ops/quantized/quantized_op.h"

namespace lenslet {
namespace {

/// Inputs of ConvInteger: x, w, x_zero_point, w_zero_point (both optional). Of QLinearConv: x, x_scale, x_zero_point,
/// w, w_scale, w_zero_point, y_scale, y_zero_point, bias (optional, int32 in units of x_scale * w_scale). Those of w
/// for all or by output channel. attributes(): those of ConvGeometry.
class IntegerConvOp final : public Op {
 public:
  explicit IntegerConvOp(const NodeSpec& spec) : quantizes_(spec.name == "QLinearConv") {
    AttributeReader reader(spec);
    read_geometry(reader, geometry_, kernel_shape_, spatial_rank_);
    if (geometry_.volume) throw Error(ErrorKind::unsupported, "3-D convolution of integers; 1-D and 2-D are done");
    if (spec.normalised) spatial_rank_ = 0;  // two entries a list, whatever the rank
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
    const bool flat = inputs[0].type.shape.rank() == 3;
    return {{dtype, flat ? Shape{p.n, p.k, p.q} : Shape{p.n, p.k, p.p, p.q}}};
  }
  double flops(std::span<const InputInfo> inputs, std::span<const TensorType>) const override {
    return problem(inputs).flops();
  }
  std::string describe(std::span<const InputInfo> inputs) const override { return problem(inputs).str(); }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape&) const override {
    return axes_kept(inputs.size(), {0});
  }

  /// The left operand is w, whose rows are output channels.
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

  ConvProblem problem(std::span<const InputInfo> inputs) const {
    const Shape &x = inputs[0].type.shape, &w = inputs[this->inputs().left].type.shape;
    const int rank = x.rank() - 2;
    if ((spatial_rank_ != 0 && spatial_rank_ != rank && rank >= 1 && rank <= 2))
      throw Error(ErrorKind::invalid_model,
                  fmt::format("convolution: attributes for {} spatial axes, input {}", spatial_rank_, x.str()));
    ConvProblem p = resolve_conv(x, w, geometry_);
    for (std::size_t i = 0; i < kernel_shape_.size(); ++i)
      if (kernel_shape_[i] != w[static_cast<int>(i) + 2])
        throw Error(ErrorKind::invalid_model, fmt::format("convolution: kernel_shape [{}] contradicts filter {}",
                                                          fmt::join(kernel_shape_, ","), w.str()));
    p.bias = present(inputs, this->inputs().bias);
    return p;
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

/// Terms in the order of the taps, and of the channels within, an even number of them.
std::int64_t terms(const ConvProblem& p) { return p.r * p.s * even(p.group_c()); }

void widen_filters(const ConvProblem& p, const IntegerOperand& w, std::int64_t first, std::int64_t last,
                   std::int16_t* to) {
  const std::int64_t c = p.group_c(), taps = p.r * p.s;
  for (std::int64_t k = first; k < last; ++k) {
    const int zero = w.zero_point(0, k);
    for (std::int64_t tap = 0; tap < taps; ++tap)
      for (std::int64_t i = 0; i < even(c); ++i)
        to[(k * taps + tap) * even(c) + i] =
            i < c ? static_cast<std::int16_t>(w.widened(w.data[(k * c + i) * taps + tap]) - zero) : std::int16_t{0};
  }
}

class BoundCpu final : public BoundKernel {
 public:
  explicit BoundCpu(const Binding& binding)
      : inputs_(binding.op<IntegerConvOp>().inputs()),
        p_(binding.op<IntegerConvOp>().problem(binding.problem.inputs())),
        lines_(binding.op<IntegerConvOp>().lines(binding.problem.inputs())),
        known_(is_known(binding.problem.inputs(), inputs_.left, inputs_.left_zero)),
        threads_(binding.threads()) {}

  std::size_t workspace_bytes() const override {
    return static_cast<std::size_t>((known_ ? 0 : p_.k * terms(p_)) + threads_ * panel_elems()) * sizeof(std::int16_t);
  }

  void run(const KernelRun& run) const override {
    IntegerRun of(run, inputs_, lines_);
    of.result.bias_lines = {.step = 1, .matrix = p_.group_k()};
    auto* const panels = reinterpret_cast<std::int16_t*>(run.workspace.data());
    const auto* filters = reinterpret_cast<const std::int16_t*>(run.blob);
    if (!known_) {
      auto* const own = panels + threads_ * panel_elems();
      run.pool->parallel_for(
          p_.k, 1, [&](std::int64_t begin, std::int64_t end, int) { widen_filters(p_, of.left, begin, end, own); });
      filters = own;
    }
    const std::int64_t pixels = p_.p * p_.q, columns = integer_panel_columns();
    const std::int64_t in_plane = (pixels + columns - 1) / columns;
    run.pool->parallel_for(
        p_.n * p_.groups * in_plane, integer_grain(p_.group_k() * panel_elems()),
        [&](std::int64_t begin, std::int64_t end, int worker) {
          std::int16_t* const panel = panels + worker * panel_elems();
          for (std::int64_t item = begin; item < end; ++item) {
            const std::int64_t plane = item / in_plane, group = plane % p_.groups, j = item % in_plane * columns;
            const std::int64_t count = std::min(columns, pixels - j);
            pack(of.right, plane, j, count, panel);
            multiply_rows(
                filters + group * p_.group_k() * terms(p_), p_.group_k(), terms(p_), panel,
                [&](std::int64_t i, const std::int32_t* sums) {
                  store_integer_row(of.result, sums, {group, 0, i, j}, count, (plane * p_.group_k() + i) * pixels + j);
                });
          }
        });
  }

 private:
  std::int64_t panel_elems() const { return terms(p_) * integer_panel_columns(); }

  /// Output pixels [first, first + count) of a group of an image.
  void pack(const IntegerOperand& x, std::int64_t plane, std::int64_t first, std::int64_t count,
            std::int16_t* to) const {
    const std::int64_t columns = integer_panel_columns(), size = p_.h * p_.w, c = p_.group_c();
    const std::uint8_t* const image = x.data + plane * c * size;
    const int zero = x.zero_point(0, 0);
    constexpr std::int64_t most_columns = 64;
    std::int64_t pixel[most_columns];  // where the tap lies in the image; -1: outside
    for (std::int64_t tap = 0; tap < p_.r * p_.s; ++tap) {
      const std::int64_t r = tap / p_.s, s = tap % p_.s;
      bool straight = true;
      for (std::int64_t j = 0, line = first / p_.q, column = first % p_.q; j < count; ++j) {
        const std::int64_t h = line * p_.stride_h - p_.pad_top + r * p_.dilation_h;
        const std::int64_t w = column * p_.stride_w - p_.pad_left + s * p_.dilation_w;
        pixel[j] = h < 0 || h >= p_.h || w < 0 || w >= p_.w ? -1 : h * p_.w + w;
        straight = straight && pixel[j] >= 0 && pixel[j] == pixel[0] + j;
        if (++column == p_.q) {
          column = 0;
          ++line;
        }
      }
      for (std::int64_t i = 0; i < even(c); i += 2, to += 2 * columns) {
        const std::uint8_t *const one = image + i * size, *const other = i + 1 < c ? one + size : nullptr;
        if (straight)
          interleave_integers(one + pixel[0], other == nullptr ? nullptr : other + pixel[0], x, zero, count, to);
        else
          for (std::int64_t j = 0; j < count; ++j) {
            const bool inside = pixel[j] >= 0;
            to[2 * j] = static_cast<std::int16_t>(inside ? x.widened(one[pixel[j]]) - zero : 0);
            to[2 * j + 1] =
                static_cast<std::int16_t>(inside && other != nullptr ? x.widened(other[pixel[j]]) - zero : 0);
          }
        std::fill(to + 2 * count, to + 2 * columns, std::int16_t{0});
      }
    }
  }

  IntegerInputs inputs_;
  ConvProblem p_;
  IntegerLines lines_;
  bool known_;
  int threads_;
};

Offer offer(const Problem& node, const Target& target) {
  const IntegerInputs inputs = node.as<IntegerConvOp>().inputs();
  return offer_prepared<BoundCpu>(node, target, inputs.left, inputs.left_zero);
}

std::optional<BlobSpec> blob(const Problem& node, const Candidate&) {
  const IntegerInputs inputs = node.as<IntegerConvOp>().inputs();
  if (!is_known(node.inputs(), inputs.left, inputs.left_zero)) return std::nullopt;
  const ConvProblem p = node.as<IntegerConvOp>().problem(node.inputs());
  return BlobSpec{.key = "widened", .bytes = static_cast<std::size_t>(p.k * terms(p)) * sizeof(std::int16_t)};
}

void prepare(const Problem& node, const Candidate&, std::span<std::byte> blob) {
  const IntegerInputs inputs = node.as<IntegerConvOp>().inputs();
  Lines zeros = node.as<IntegerConvOp>().lines(node.inputs()).left_zero;
  const ConvProblem p = node.as<IntegerConvOp>().problem(node.inputs());
  widen_filters(p, operand_of(node, inputs.left, inputs.left_zero, zeros), 0, p.k,
                reinterpret_cast<std::int16_t*>(blob.data()));
}

std::unique_ptr<const BoundKernel> bind_cuda(const Binding& binding) {
  const auto& op = binding.op<IntegerConvOp>();
  return bound([p = op.problem(binding.problem.inputs()), lines = op.lines(binding.problem.inputs()),
                inputs = op.inputs()](const KernelRun& run) {
    IntegerRun of(run, inputs, lines);
    of.result.bias_lines = {.step = 1, .matrix = p.group_k()};
    if constexpr (cuda_built) cuda::convolve_integers(*run.cuda, p, of.left, of.right, of.result);
  });
}

std::optional<std::string> refuse_cuda(const Problem& node) {
  const ConvProblem p = node.as<IntegerConvOp>().problem(node.inputs()), padded = p.with_explicit_padding();
  for (const std::int64_t elems :
       {padded.n * padded.c * padded.h * padded.w, p.k * p.group_c() * p.r * p.s, p.n * p.k * p.p * p.q})
    if (elems > cuda::most_integers) return "a tensor of more than 2^30 elements";
  return std::nullopt;
}

constexpr SimpleKernel kernels[] = {
    {.types = dtypes<Int8Types>, .offer = offer, .bind = bind<BoundCpu>, .blob = blob, .prepare = prepare},
    {.device = DeviceKind::cuda, .types = dtypes<Int8Types>, .refuse = refuse_cuda, .bind = bind_cuda}};

}  // namespace

OpParts conv_integer() { return {make_from<IntegerConvOp>, kernels}; }

}  // namespace lenslet
