// Attention: what it means. attention_cpu.cpp and attention.cu compute it.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "base/cuda/has_wgmma.h"
#include "base/cuda_built.h"
#include "ops/core/checks.h"
#include "ops/core/config_text.h"
#include "ops/core/sum_tolerance.h"
#include "ops/gemm/attention_bias.h"
#include "ops/gemm/attention_cuda.h"
#include "ops/gemm/attention_op.h"

namespace lenslet {
namespace {

using Integers = std::vector<std::int64_t>;

[[noreturn]] void refuse(std::string why) { throw Error(ErrorKind::unsupported, std::move(why)); }
[[noreturn]] void invalid(std::string why) { throw Error(ErrorKind::invalid_model, std::move(why)); }

constexpr std::array<std::int64_t AttentionProblem::*, 6> sizes{
    &AttentionProblem::n,    &AttentionProblem::heads,     &AttentionProblem::queries,
    &AttentionProblem::keys, &AttentionProblem::head_size, &AttentionProblem::value_size};

Integers list_of(const AttentionOperand& o) { return {o.offset, o.batch, o.head, o.token}; }

AttributeList stated_attributes(const AttentionProblem& p, const Shape& y_shape) {
  Integers dims;
  for (const auto size : sizes) dims.push_back(p.*size);
  AttributeList list{{"scale", p.scale},
                     {"sizes", dims},
                     {"q", list_of(p.q)},
                     {"k", list_of(p.k)},
                     {"v", list_of(p.v)},
                     {"y", list_of(p.y)},
                     {"y_shape", Integers(y_shape.dims().begin(), y_shape.dims().end())}};
  if (p.linear_epsilon) list.emplace_back("linear_epsilon", *p.linear_epsilon);
  if (p.between_channels) list.emplace_back("between_channels", std::int64_t{1});
  if (!p.head_scales.empty()) list.emplace_back("head_scales", p.head_scales);
  if (p.qk_norm_epsilon) list.emplace_back("qk_norm_epsilon", *p.qk_norm_epsilon);
  return list;
}

/// As many integers as `count`, none negative or beyond what a tensor holds.
Integers numbers(AttributeReader& reader, std::string_view name, std::size_t count) {
  Integers list = reader.integers(name);
  if (list.size() != count ||
      std::ranges::any_of(list, [](std::int64_t i) { return i < 0 || i > std::int64_t{1} << 40; }))
    invalid(fmt::format("attribute '{}' is not {} sizes", name, count));
  return list;
}
AttentionOperand operand(AttributeReader& reader, std::string_view name) {
  const Integers list = numbers(reader, name, 4);
  return {list[0], list[1], list[2], list[3]};
}

AttentionOperand tokens_first(std::int64_t tokens, std::int64_t heads, std::int64_t size) {
  return {0, tokens * heads * size, size, heads * size};
}
AttentionOperand heads_first(std::int64_t tokens, std::int64_t heads, std::int64_t size) {
  return {0, heads * tokens * size, tokens * size, size};
}

/// `rows` of scores and their `size` are tokens and channels, or the other way round. In double, since products of
/// strides that a file cannot contain may exceed 64 bits.
void require_inside(std::string_view name, const AttentionProblem& p, const AttentionOperand& o, std::int64_t rows,
                    std::int64_t size, const Shape& within) {
  const std::int64_t tokens = p.between_channels ? size : rows, channels = p.between_channels ? rows : size;
  if (p.n == 0 || p.heads == 0 || tokens == 0 || channels == 0) return;
  const auto steps = [](std::int64_t count, std::int64_t step) {
    return static_cast<double>(count - 1) * static_cast<double>(step);
  };
  const double last = static_cast<double>(o.offset) + steps(p.n, o.batch) + steps(p.heads, o.head) +
                      steps(tokens, o.token) + static_cast<double>(channels - 1);
  if (last >= static_cast<double>(within.elems()))
    invalid(fmt::format("{} reaches element {:.0f} of an input {}", name, last, within.str()));
}

/// Whether the rows of y lie one behind another, in any order.
bool dense(const AttentionProblem& p) {
  std::int64_t tokens = p.queries, next = p.value_size;
  if (p.between_channels) std::swap(tokens, next);
  std::array<std::pair<std::int64_t, std::int64_t>, 3> axes{
      {{p.y.batch, p.n}, {p.y.head, p.heads}, {p.y.token, tokens}}};  // steps and counts
  std::ranges::sort(axes);
  for (const auto& [step, count] : axes) {
    if (count == 1) continue;
    if (step != next) return false;
    next *= count;
  }
  return p.y.offset == 0;
}

/// Sets the bias's sizes from its shape, which broadcasts to [N,H,L,S], except N of a pass, which repeats it.
void set_bias(AttentionProblem& p, const Shape& shape, bool repeats) {
  if (shape.rank() < 1 || shape.rank() > 4) invalid(fmt::format("attn_mask has shape {} (rank 1 to 4)", shape.str()));
  const auto from_end = [&](int i) { return i <= shape.rank() ? shape[shape.rank() - i] : 1; };
  p.bias_n = from_end(4), p.bias_heads = from_end(3), p.bias_queries = from_end(2);
  const auto one_or = [](std::int64_t dim, std::int64_t full) { return dim == 1 || dim == full; };
  if (from_end(1) < p.keys)
    refuse(fmt::format("attn_mask {} with {} keys; only one value for each key is supported", shape.str(), p.keys));
  if (from_end(1) != p.keys || !one_or(p.bias_queries, p.queries) || !one_or(p.bias_heads, p.heads) || p.bias_n == 0 ||
      (repeats ? p.n % p.bias_n != 0 : !one_or(p.bias_n, p.n)))
    invalid(fmt::format("attn_mask has shape {}, which does not broadcast to {}", shape.str(),
                        Shape{p.n, p.heads, p.queries, p.keys}.str()));
}

/// Takes a table of rows [rows_n,L] that names each row once.
void set_rows(AttentionProblem& p, const InputInfo& table) {
  const Shape& shape = table.type.shape;
  const auto in_rows = [&](const AttentionOperand& o) { return o.batch == p.queries * o.token; };
  if (table.type.dtype != DType::i32 || shape.rank() != 2 || shape[0] == 0 || p.n % shape[0] != 0 ||
      shape[1] != p.queries || p.queries != p.keys || !in_rows(p.q) || !in_rows(p.k) || !in_rows(p.v) || !in_rows(p.y))
    invalid(fmt::format("a table of rows {} with {} problems of {} tokens", shape.str(), p.n, p.queries));
  if (table.constant == nullptr) invalid("the table of rows is not known");
  std::vector<bool> named(static_cast<std::size_t>(shape.elems()));
  for (const std::int32_t row : table.constant->values<std::int32_t>()) {
    if (row < 0 || row >= shape.elems() || named[static_cast<std::size_t>(row)])
      invalid(fmt::format("the table of rows does not name each of {} once", shape.elems()));
    named[static_cast<std::size_t>(row)] = true;
  }
  p.rows_n = shape[0];
}

}  // namespace

AttentionOp::AttentionOp(const NodeSpec& spec) {
  AttributeReader reader(spec);
  if (reader.has("scale")) scale_ = reader.real("scale", 0);
  if (spec.normalised && reader.has("sizes")) {
    AttentionProblem& p = stated_.emplace();
    const Integers list = numbers(reader, "sizes", sizes.size());
    for (std::size_t i = 0; i < sizes.size(); ++i) p.*sizes[i] = list[i];
    p.q = operand(reader, "q");
    p.k = operand(reader, "k");
    p.v = operand(reader, "v");
    p.y = operand(reader, "y");
    p.scale = scale_.value_or(1);
    p.head_scales = reader.reals("head_scales");
    const std::int64_t scaled = std::ssize(p.head_scales);
    if (scaled != 0 && (scaled != p.heads || scaled > most_head_scales))
      invalid(fmt::format("attribute 'head_scales' has {} values for {} heads", scaled, p.heads));
    if (reader.has("qk_norm_epsilon")) p.qk_norm_epsilon = reader.real("qk_norm_epsilon", 0);
    if (p.qk_norm_epsilon && !(*p.qk_norm_epsilon >= least_qk_norm_epsilon))
      invalid(fmt::format("attribute 'qk_norm_epsilon' is {}, below {}", *p.qk_norm_epsilon, least_qk_norm_epsilon));
    y_shape_ = Shape(reader.integers("y_shape"));
    if (reader.has("linear_epsilon")) p.linear_epsilon = reader.real("linear_epsilon", 0);
    p.between_channels = reader.flag("between_channels", false);
    reader.finish();
    return;
  }
  q_heads_ = reader.integer("q_num_heads", 0);
  kv_heads_ = reader.integer("kv_num_heads", 0);
  if (q_heads_ < 0 || kv_heads_ < 0) invalid("attributes 'q_num_heads' and 'kv_num_heads' are negative");
  if (reader.flag("is_causal", false)) refuse("attribute 'is_causal' is not supported");
  if (reader.real("softcap", 0) != 0) refuse("attribute 'softcap' is not supported");
  reader.ignore("softmax_precision");      // scores are in float32 or wider
  reader.ignore("qk_matmul_output_mode");  // of an output that is refused
  if (spec.outputs > 1) refuse("outputs present_key, present_value and qk_matmul_output are not supported");
  reader.finish();
}

AttributeList AttentionOp::attributes() const {
  AttributeList list;
  if (!stated_) {
    list = {{"q_num_heads", q_heads_}, {"kv_num_heads", kv_heads_}};
    if (scale_) list.emplace_back("scale", *scale_);
    return list;
  }
  return stated_attributes(*stated_, y_shape_);
}

std::size_t AttentionOp::holder(std::span<const InputInfo> inputs, std::size_t i) {
  while (i > 0 && !present(inputs, i)) --i;
  return i;
}

AttentionProblem AttentionOp::of_shapes(std::span<const InputInfo> inputs) const {
  const Shape &x = required_input(inputs, q, "Q").shape, &key = required_input(inputs, k, "K").shape,
              &value = required_input(inputs, v, "V").shape;
  require_rank("input Q", x, 3, 4);
  AttentionProblem p;
  p.n = x[0];
  const bool flat = x.rank() == 3;
  if (key.rank() != x.rank() || value.rank() != x.rank())
    invalid(fmt::format("Q {}, K {} and V {} differ in rank", x.str(), key.str(), value.str()));
  p.heads = flat ? q_heads_ : x[1];
  const std::int64_t kv_heads = flat ? kv_heads_ : key[1];
  if (p.heads == 0 && flat) invalid("attribute 'q_num_heads' is missing, with a 3-D Q");
  if (kv_heads != p.heads)
    refuse(fmt::format("{} heads of Q and {} of K and V; only equal numbers are supported", p.heads, kv_heads));
  const std::int64_t per_row = flat ? p.heads : 1;
  p.queries = x[flat ? 1 : 2];
  p.keys = key[flat ? 1 : 2];
  for (const Shape* shape : {&x, &key, &value})
    if ((*shape)[shape->rank() - 1] % per_row != 0)
      invalid(fmt::format("{} heads do not divide the channels of {}", p.heads, shape->str()));
  p.head_size = x[x.rank() - 1] / per_row;
  p.value_size = value[x.rank() - 1] / per_row;
  const auto full = [&](std::int64_t tokens, std::int64_t size) {
    return flat ? Shape{p.n, tokens, p.heads * size} : Shape{p.n, p.heads, tokens, size};
  };
  require_shape("input K", key, full(p.keys, p.head_size));
  require_shape("input V", value, full(p.keys, p.value_size));
  const auto lies = flat ? tokens_first : heads_first;
  p.q = lies(p.queries, p.heads, p.head_size);
  p.k = lies(p.keys, p.heads, p.head_size);
  p.v = lies(p.keys, p.heads, p.value_size);
  p.y = lies(p.queries, p.heads, p.value_size);
  p.scale = scale_.value_or(1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(p.head_size, 1))));
  return p;
}

AttentionProblem AttentionOp::problem(std::span<const InputInfo> inputs) const {
  for (const auto& [i, name] :
       {std::pair(4U, "past_key"), std::pair(5U, "past_value"), std::pair(6U, "nonpad_kv_seqlen")})
    if (present(inputs, i) && !(stated_ && i == rows)) refuse(fmt::format("input {} is not supported", name));
  AttentionProblem p = stated_ ? *stated_ : of_shapes(inputs);
  if (stated_) {
    required_input(inputs, q, "Q");
    const auto within = [&](std::size_t i) { return inputs[holder(inputs, i)].type.shape; };
    require_inside("Q", p, p.q, p.queries, p.head_size, within(q));
    require_inside("K", p, p.k, p.keys, p.head_size, within(k));
    require_inside("V", p, p.v, p.keys, p.value_size, within(v));
    const Shape written{p.n, p.heads, p.queries, p.value_size};
    if (y_shape_.elems() != written.elems() || !dense(p))
      invalid(fmt::format("y {} does not hold the rows of {} once each", y_shape_.str(), written.str()));
  }
  if (present(inputs, bias)) set_bias(p, inputs[bias].type.shape, stated_.has_value());
  if (present(inputs, rows)) set_rows(p, inputs[rows]);
  if (p.linear_epsilon && (p.bias_n > 0 || p.rows_n > 0 || p.qk_norm_epsilon || !p.head_scales.empty()))
    invalid("linear attention has no bias, no table of rows, no norms and no scales");
  if (p.between_channels && (p.bias_n > 0 || p.rows_n > 0 || p.linear_epsilon))
    invalid("attention between channels has no bias and no table of rows, and is not linear");
  return p;
}

std::vector<TensorType> AttentionOp::infer(std::span<const InputInfo> inputs) const {
  const AttentionProblem p = problem(inputs);
  if (present(inputs, bias) && inputs[bias].type.dtype == DType::boolean) refuse("attn_mask of bool is not supported");
  require_equal_dtypes(inputs.first(std::min(inputs.size(), rows)));
  const Shape& x = inputs[q].type.shape;
  const int last = x.rank() - 1;
  return {{inputs[q].type.dtype, stated_ ? y_shape_ : x.with(last, (last == 2 ? p.heads : 1) * p.value_size)}};
}

double AttentionOp::flops(std::span<const InputInfo> inputs, std::span<const TensorType>) const {
  const AttentionProblem p = problem(inputs);
  if (p.linear_epsilon)  // two products, and the sums that divide
    return 2.0 * static_cast<double>(Shape{p.n, p.heads, p.queries + p.keys, p.head_size}.elems()) *
           static_cast<double>(p.value_size + 1);
  const auto scores = static_cast<double>(Shape{p.n, p.heads, p.queries, p.keys}.elems());
  const auto normalised = static_cast<double>(Shape{p.n, p.heads, p.queries + p.keys, p.head_size}.elems());
  return scores * (2.0 * static_cast<double>(p.head_size + p.value_size) + 4.0) +  // 4: as Softmax
         (p.qk_norm_epsilon ? 3.0 * normalised : 0.0);
}

std::string AttentionOp::describe(std::span<const InputInfo> inputs) const {
  const AttentionProblem p = problem(inputs);
  const std::string_view kind = p.linear_epsilon ? "linear, " : p.between_channels ? "between channels, " : "";
  std::string text = fmt::format("{}{}x{} heads, {}x{} scores of {}, values of {}", kind, p.n, p.heads, p.queries,
                                 p.keys, p.head_size, p.value_size);
  if (p.qk_norm_epsilon) text += " +norm of Q and K";
  if (p.bias_n > 0) text += " +bias";
  if (p.rows_n > 0) text += fmt::format(" in rows by a table of {}", p.rows_n * p.queries);
  return text;
}

std::optional<AxisMap> AttentionOp::axis_map(std::span<const InputInfo> inputs, const Shape& y) const {
  if (stated_) return std::nullopt;
  AxisMap map = axes_kept(inputs.size(), {});
  // N, and of four axes H.
  for (std::size_t i = 0; i < inputs.size() && i <= bias; ++i) {
    if (!inputs[i].present) continue;
    AxisMap::Followed& followed = map.inputs[i];
    followed.parameter = false;
    for (int axis = 0; axis < y.rank() - 2; ++axis) {
      const int own = i == bias ? axis - 4 + inputs[i].type.shape.rank() : axis;
      const auto at = static_cast<std::size_t>(axis);
      followed.stretched[at] = own < 0 || (i == bias && inputs[i].type.shape[own] == 1);
      if (own >= 0 && inputs[i].type.shape[own] == y[axis]) followed.axis[at] = static_cast<std::int8_t>(own);
    }
  }
  return map;
}

std::shared_ptr<const Op> make_attention_op(const AttentionProblem& p, const Shape& y_shape) {
  return make_normalised_op("Attention", stated_attributes(p, y_shape), 5);
}

namespace {

double tolerance(const Problem& node, bool tf32) {
  const AttentionProblem p = attention_problem(node);
  const DType type = node.inputs()[AttentionOp::q].type.dtype;
  const auto sum = tf32 ? tf32_sum_tolerance : sum_tolerance;
  if (p.linear_epsilon) return sum_tolerance(p.head_size) + 2 * sum_tolerance(p.keys);  // of values and of divisors
  const bool rounded = type == DType::f16 || type == DType::bf16;                       // the powers, to multiply by V
  const double norms = p.qk_norm_epsilon ? sum(p.head_size) : 0;  // two roots of sums: half of each
  return norms + sum(p.head_size) + (rounded ? half_sum_tolerance(type, p.keys) : sum(p.keys));
}

/// The CUDA kernels count in 31 bits within a head.
std::optional<std::string> refuse_cuda(const Problem& node) {
  const AttentionProblem p = attention_problem(node);
  if (p.between_channels) {
    if (std::max(p.queries, p.keys) > cuda::most_scored_channels)
      return fmt::format("more than {} channels a head", cuda::most_scored_channels);
    const double tokens = static_cast<double>(std::max(p.head_size, p.value_size));
    constexpr double beyond = 64 * 1024;  // the blocks of a head may cover some tokens more
    const bool large = static_cast<double>(p.n) * static_cast<double>(p.heads) * (tokens + 64) + beyond >
                       std::numeric_limits<std::int32_t>::max();
    return large ? std::optional<std::string>("more than 2^31 - 1 tokens of heads") : std::nullopt;
  }
  const auto channels = p.linear_epsilon ? cuda::most_linear_attention_channels : cuda::most_attention_channels;
  if (std::max(p.head_size, p.value_size) > channels) return fmt::format("more than {} channels a head", channels);
  constexpr double most = std::numeric_limits<std::int32_t>::max();
  const bool large = static_cast<double>(p.n) * static_cast<double>(p.heads) * static_cast<double>(p.queries) > most ||
                     static_cast<double>(p.keys) > most / 2;
  return large ? std::optional<std::string>("more than 2^31 - 1 rows of scores") : std::nullopt;
}

/// Bytes of a known bias in tiles, in 16 bits; but where rows are normalised biases come after the products.
std::optional<std::size_t> bias_tiles(const Problem& node) {
  const auto inputs = node.inputs();
  const bool halves = dtypes<HalfTypes>.contains(inputs[AttentionOp::q].type.dtype);
  if (!halves || !present(inputs, AttentionOp::bias) || inputs[AttentionOp::bias].constant == nullptr)
    return std::nullopt;
  const AttentionProblem p = attention_problem(node);
  if (p.qk_norm_epsilon || p.linear_epsilon || !cuda::on_tensor_cores(p)) return std::nullopt;
  return bias_tiles_bytes(p);
}
InputMask reads(const Problem& node) {
  return bias_tiles(node) ? all_inputs & ~input_bit(AttentionOp::bias) : all_inputs;
}
/// The choice decided it.
bool takes_tiles(const Candidate& candidate) { return (candidate.reads & input_bit(AttentionOp::bias)) == 0; }

std::optional<BlobSpec> blob(const Problem& node, const Candidate& candidate) {
  if (!takes_tiles(candidate)) return std::nullopt;
  const AttentionProblem p = attention_problem(node);
  return BlobSpec{.key = fmt::format("bias in tiles of {}x{}", p.queries, p.keys), .bytes = bias_tiles(node).value()};
}
void prepare(const Problem& node, const Candidate&, std::span<std::byte> to) {
  const Tensor& bias = *node.inputs()[AttentionOp::bias].constant;
  const auto* const bits = reinterpret_cast<const std::uint16_t*>(bias.data());
  const std::uint16_t minus_infinity = bias.dtype() == DType::f16 ? 0xFC00 : 0xFF80;
  write_bias_tiles(attention_problem(node), {bits, static_cast<std::size_t>(bias.elems())}, minus_infinity, to);
}

// Of float32 with keys in tiles "tf32=no" or "tf32=yes", whether products round their operands; else empty.
bool in_tiles(const Problem& node, const AttentionProblem& p) {
  return node.inputs()[AttentionOp::q].type.dtype == DType::f32 && !p.linear_epsilon && !p.between_channels &&
         cuda::fits_attention_tiles(p);
}
Offer offer_cuda(const Problem& node, const Target& target) {
  const AttentionProblem p = attention_problem(node);
  Candidate candidate;
  bool tf32 = false;
  if (in_tiles(node, p)) {
    tf32 = target.numerics.multiply == Numerics::Multiply::tf32;
    candidate.config = ConfigWriter().add("tf32", tf32).str();
  }
  candidate.inputs.assign(node.inputs().size(), formats::nchw);
  candidate.outputs = {formats::nchw};
  candidate.workspace_bytes = p.between_channels ? cuda::channel_attention_workspace(p) : 0;
  candidate.estimated_us = target.device.launch_us + node.bytes() / target.device.bytes_per_us;
  candidate.tolerance = tolerance(node, tf32);
  candidate.reads = reads(node);
  return candidate;
}

std::unique_ptr<const BoundKernel> bind_channels_cuda(const Binding& binding) {
  const auto inputs = binding.problem.inputs();
  const AttentionProblem p = attention_problem(binding.problem);
  return bound(
      [p, k = AttentionOp::holder(inputs, AttentionOp::k),
       v = AttentionOp::holder(inputs, AttentionOp::v)](const KernelRun& run) {
        if constexpr (cuda_built) {
          const Tensor& q = run.inputs[AttentionOp::q];
          cuda::channel_attention(*run.cuda, p, q.dtype(), q.data(), run.inputs[k].data(), run.inputs[v].data(),
                                  run.outputs[0].data(), run.workspace.data());
        }
      },
      cuda::channel_attention_workspace(p));
}

cuda::AttentionMeans means_of(const Binding& binding, const AttentionProblem& p) {
  cuda::AttentionMeans means{.wgmma = cuda::has_wgmma(binding.device)};
  if (in_tiles(binding.problem, p)) {
    ConfigReader reader(binding.candidate.config);
    means.tf32 = reader.flag("tf32");
    reader.finish();
  }
  return means;
}

std::unique_ptr<const BoundKernel> bind_cuda(const Binding& binding) {
  const auto inputs = binding.problem.inputs();
  const AttentionProblem problem = attention_problem(binding.problem);
  if (problem.between_channels) return bind_channels_cuda(binding);
  return bound([p = problem, means = means_of(binding, problem), tiles = takes_tiles(binding.candidate),
                k = AttentionOp::holder(inputs, AttentionOp::k),
                v = AttentionOp::holder(inputs, AttentionOp::v)](const KernelRun& run) {
    if constexpr (cuda_built) {
      const Tensor& q = run.inputs[AttentionOp::q];
      if (p.linear_epsilon)
        return cuda::linear_attention(*run.cuda, p, q.dtype(), q.data(), run.inputs[k].data(), run.inputs[v].data(),
                                      run.outputs[0].data());
      cuda::AttentionBias bias{.data = run.blob, .tiles = tiles};
      if (!tiles) bias.data = p.bias_n > 0 ? run.inputs[AttentionOp::bias].data() : nullptr;
      const std::int32_t* const rows = p.rows_n > 0 ? run.in<std::int32_t>(AttentionOp::rows) : nullptr;
      cuda::attention(*run.cuda, p, means, q.dtype(), q.data(), run.inputs[k].data(), run.inputs[v].data(), bias, rows,
                      run.outputs[0].data());
    }
  });
}

constexpr SimpleKernel kernels[] = {
    {.types = dtypes<Types<float>>,
     .tolerance_for = [](const Problem& node) { return tolerance(node, false); },
     .bind = bind_attention_cpu},
    {.device = DeviceKind::cuda,
     .types = dtypes<WithHalves<Types<float>>>,
     .refuse = refuse_cuda,
     .offer = offer_cuda,
     .bind = bind_cuda,
     .blob = blob,
     .prepare = prepare},
};

}  // namespace

OpParts attention() { return {make_from<AttentionOp>, kernels}; }

}  // namespace lenslet
