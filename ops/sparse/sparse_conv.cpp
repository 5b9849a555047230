#include "ops/sparse/sparse_conv.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ops/core/checks.h"
#include "ops/core/read_operands.h"

namespace lenslet {

namespace {

constexpr std::string_view kind_names[] = {"submanifold", "regular", "inverse"};

}  // namespace

SparseConvOp::SparseConvOp(const NodeSpec& spec) {
  AttributeReader reader(spec);
  const std::string kind = reader.text("kind", "submanifold");
  const auto* const found = std::ranges::find(kind_names, kind);
  if (found == std::end(kind_names))
    throw Error(ErrorKind::invalid_model,
                fmt::format("attribute kind is '{}'; there are {}", kind, fmt::join(kind_names, ", ")));
  kind_ = static_cast<Kind>(found - std::begin(kind_names));
  if (spec.normalised) read_epilogue(reader, epilogue_);
  reader.finish();
}

AttributeList SparseConvOp::attributes() const {
  AttributeList list{{"kind", std::string(kind_names[static_cast<std::size_t>(kind_)])}};
  append_attributes(list, epilogue_);
  return list;
}

SparseConvProblem SparseConvOp::problem(std::span<const InputInfo> inputs) const {
  const Shape& x = required_input(inputs, input, "x").shape;
  const Shape& book = required_input(inputs, rulebook, "rulebook").shape;
  const Shape& w = required_input(inputs, filter, "w").shape;
  require_rank("x", x, 2, 2);
  require_rank("rulebook", book, 1, 1);
  require_rank("w", w, 4, 5);
  if (w[1] != x[1]) throw Error(ErrorKind::invalid_model, fmt::format("filters {} for {} channels", w.str(), x[1]));
  if (w[0] == 0 || w[1] == 0)
    throw Error(ErrorKind::unsupported, fmt::format("filters {}: none, or of no channels", w.str()));
  SparseConvProblem p{.max_inputs = x[0],
                      .channels = x[1],
                      .filters = w[0],
                      .submanifold = kind_ == Kind::submanifold,
                      .inverse = kind_ == Kind::inverse,
                      .weights_known = inputs[filter].constant != nullptr,
                      .bias = present(inputs, bias),
                      .residual = present(inputs, residual),
                      .activation = epilogue_.activation};
  p.taps = 1;
  for (int a = 2; a < w.rank(); ++a) {
    if (w[a] < 1 || w[a] > 5)
      throw Error(ErrorKind::unsupported, fmt::format("filters {}: 1 to 5 taps an axis are supported", w.str()));
    p.taps *= w[a];
  }
  if (p.submanifold && p.taps % 2 == 0)
    throw Error(ErrorKind::invalid_model, "a submanifold convolution needs an odd number of taps on each axis");
  const std::int64_t header = rulebook_header(p.submanifold ? p.taps / 2 : p.taps), pairs = (book[0] - header) / 2;
  if (book[0] < header || (book[0] - header) % 2 != 0)
    throw Error(ErrorKind::invalid_model,
                fmt::format("a rulebook {} is none of {} taps of this kind", book.str(), p.taps));
  p.max_outputs = x[0];
  if (present(inputs, sites)) {
    require_indices(inputs[sites].type, w.rank() - 2);
    p.max_outputs = inputs[sites].type.shape[0];
  } else if (!p.submanifold) {
    throw Error(ErrorKind::invalid_model, "input 3 (sites) is left out: it says how many outputs there may be");
  }
  if (present(inputs, neighbours)) {
    const TensorType& table = inputs[neighbours].type;
    require_shape("neighbours", table.shape, {p.taps, neighbour_rows(table.shape[1])});
    p.table_rows = table.shape[1];
  }
  p.filter_type = inputs[filter].type.dtype;
  if (const auto& to = epilogue_.requantize) {
    p.accumulator_type = DType::i32;
    p.requantized = true;
    p.y_zero_point = to->zero_point;
  }
  p.max_pairs = p.submanifold ? 2 * pairs + p.max_outputs : pairs;
  return p;
}

std::vector<TensorType> SparseConvOp::infer(std::span<const InputInfo> inputs) const {
  const SparseConvProblem p = problem(inputs);
  require_dtype("rulebook", inputs[rulebook].type.dtype, {DType::i32});
  const Shape y{p.max_outputs, p.filters};
  DType dtype = inputs[input].type.dtype;
  const auto require_like_x = [&](std::size_t i, const char* name) {
    require_dtype(name, inputs[i].type.dtype, {dtype});
  };
  if (epilogue_.requantize) {
    dtype = requantized_type(epilogue_, inputs);
  } else {
    require_like_x(filter, "w");
    if (p.bias) require_like_x(bias, "bias");
    if (p.residual) require_like_x(residual, "residual");
  }
  if (p.bias) require_shape("bias", inputs[bias].type.shape, {p.filters});
  if (p.table_rows > 0) require_dtype("neighbours", inputs[neighbours].type.dtype, {DType::i32});
  if (p.residual) require_shape("residual", inputs[residual].type.shape, y);
  if (!epilogue_.scale.empty() && static_cast<std::int64_t>(epilogue_.scale.size()) != p.filters)
    throw Error(ErrorKind::internal, fmt::format("{} scales for {} filters", epilogue_.scale.size(), p.filters));
  return {{dtype, y}};
}

double SparseConvOp::flops(std::span<const InputInfo> inputs, std::span<const TensorType>) const {
  return problem(inputs).flops();
}

std::string SparseConvOp::describe(std::span<const InputInfo> inputs) const {
  const SparseConvProblem p = problem(inputs);
  const Shape& w = inputs[filter].type.shape;
  std::string window;
  for (int a = 2; a < w.rank(); ++a) window += fmt::format("{}{}", a == 2 ? "" : "x", w[a]);
  std::string text = fmt::format("up to {}x{} -> {}x{}, {} {}", p.max_inputs, p.channels, p.max_outputs, p.filters,
                                 window, kind_names[static_cast<std::size_t>(kind_)]);
  if (p.bias) text += " +bias";
  if (p.residual) text += " +residual";
  if (p.activation.kind != Activation::Kind::none) text += fmt::format(" +{}", to_string(p.activation));
  return text;
}

std::shared_ptr<const Op> SparseConvOp::with_epilogue(Epilogue changed) const {
  auto op = std::make_shared<SparseConvOp>(*this);
  op->epilogue_ = std::move(changed);
  return op;
}

std::optional<std::string> refuse_types(const Problem& node, DType storage) {
  const auto type_of = [&](std::size_t i) { return node.inputs()[i].type.dtype; };
  if (node.outputs()[0].dtype != storage)
    return fmt::format("its output is {}, not {}", to_string(node.outputs()[0].dtype), to_string(storage));
  for (const std::size_t i : {SparseConvOp::input, SparseConvOp::residual})
    if (present(node.inputs(), i) && type_of(i) != storage)
      return fmt::format("its {} is {}, its output {}", i == SparseConvOp::input ? "input" : "residual",
                         to_string(type_of(i)), to_string(storage));
  for (const std::size_t i : {SparseConvOp::filter, SparseConvOp::bias})
    if (present(node.inputs(), i) && type_of(i) != DType::f32)
      return fmt::format("its {} is {}; kernels round float32", i == SparseConvOp::filter ? "filter" : "bias",
                         to_string(type_of(i)));
  return std::nullopt;
}

SparseConvRun::SparseConvRun(const SparseConvProblem& p, const KernelRun& run)
    : rulebook(run.inputs[SparseConvOp::rulebook], p.taps, p.submanifold, p.inverse, p.max_inputs, p.max_outputs) {
  read_operands<SparseConvOp>(run, p, p.filters, *this);
}

OpParts sparse_conv() { return {make_from<SparseConvOp>}; }

}  // namespace lenslet
