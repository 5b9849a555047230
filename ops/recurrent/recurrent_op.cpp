// The LSTM, GRU and RNN operators.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ops/core/checks.h"
#include "ops/core/sum_tolerance.h"
#include "ops/recurrent/recurrent.h"

namespace lenslet {
namespace {

/// An activation's name, whether it has alpha and beta, and their defaults: those of the operator of that name.
struct Known {
  std::string_view name;
  bool alpha = false, beta = false;
  double default_alpha = 0, default_beta = 0;
};
constexpr Known known_functions[] = {
    {"Relu"},
    {"Tanh"},
    {"Sigmoid"},
    {"Affine", true, true, 1, 0},
    {"LeakyRelu", true, false, 0.01},
    {"ThresholdedRelu", true, false, 1},
    {"ScaledTanh", true, true, 1, 1},
    {"HardSigmoid", true, true, 0.2, 0.5},
    {"Elu", true, false, 1},
    {"Softsign"},
    {"Softplus"},
};

/// Some exporters write them in lower case.
const Known& known_function(std::string_view name) {
  const auto same = [](char a, char b) { return (a | ' ') == (b | ' '); };
  for (const Known& known : known_functions)
    if (std::equal(name.begin(), name.end(), known.name.begin(), known.name.end(), same)) return known;
  throw Error(ErrorKind::invalid_model, fmt::format("attribute 'activations' names '{}'", name));
}

CellFunction cell_function(std::string_view name, double alpha, double beta) {
  const auto a = static_cast<float>(alpha), b = static_cast<float>(beta);
  if (name == "ScaledTanh") return {.f = {UnaryKind::Tanh}, .before = b, .after = a};
  // A slope of 1 also below 0 gives x.
  if (name == "Affine") return {.f = {UnaryKind::LeakyRelu, 1}, .after = a, .offset = b};
  if (name == "Relu") return {.f = {UnaryKind::Relu}};
  if (name == "Tanh") return {.f = {UnaryKind::Tanh}};
  if (name == "Sigmoid") return {.f = {UnaryKind::Sigmoid}};
  if (name == "LeakyRelu") return {.f = {UnaryKind::LeakyRelu, a}};
  if (name == "ThresholdedRelu") return {.f = {UnaryKind::ThresholdedRelu, a}};
  if (name == "HardSigmoid") return {.f = {UnaryKind::HardSigmoid, a, b}};
  if (name == "Elu") return {.f = {UnaryKind::Elu, a}};
  if (name == "Softsign") return {.f = {UnaryKind::Softsign}};
  return {.f = {UnaryKind::Softplus}};
}

Cell cell_of(std::string_view name) { return name == "LSTM" ? Cell::lstm : name == "GRU" ? Cell::gru : Cell::rnn; }

std::vector<std::string> strings(AttributeReader& reader, const NodeSpec& spec, std::string_view name) {
  if (!reader.has(name)) return {};
  for (const auto& [key, value] : spec.attributes)
    if (key == name)
      if (const auto* list = std::get_if<std::vector<std::string>>(&value)) return *list;
  throw Error(ErrorKind::invalid_model, fmt::format("attribute '{}' must be a list of strings", name));
}

}  // namespace

RecurrentOp::RecurrentOp(const NodeSpec& spec) : outputs_(spec.outputs) {
  form_.cell = cell_of(spec.name);
  AttributeReader reader(spec);
  hidden_ = reader.integer("hidden_size", 0);
  const std::string direction = reader.text("direction", "forward");
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional")
    throw Error(ErrorKind::invalid_model, fmt::format("attribute 'direction' is '{}'", direction));
  form_.directions = direction == "bidirectional" ? 2 : 1;
  form_.reverse = direction == "reverse";
  if (spec.before(14)) {
    reader.ignore("output_sequence");  // until opset 7, and which outputs there are says it as well
  } else {
    const std::int64_t layout = reader.integer("layout", 0);
    if (layout != 0 && layout != 1)
      throw Error(ErrorKind::invalid_model, fmt::format("attribute 'layout' is {}", layout));
    form_.batch_first = layout == 1;
  }
  if (form_.cell == Cell::lstm) form_.input_forget = reader.flag("input_forget", false);
  if (form_.cell == Cell::gru) form_.linear_before_reset = reader.flag("linear_before_reset", false);
  form_.clips = reader.has("clip");
  if (form_.clips) {
    form_.clip = static_cast<float>(reader.real("clip", 0));
    if (!(form_.clip > 0)) throw Error(ErrorKind::invalid_model, fmt::format("attribute 'clip' is {}", form_.clip));
  }

  const auto each = static_cast<std::size_t>(functions_of(form_.cell));
  const std::size_t count = each * static_cast<std::size_t>(form_.directions);
  std::vector<std::string> names = strings(reader, spec, "activations");
  if (names.empty())
    for (std::size_t i = 0; i < count; ++i) names.emplace_back(i % each == 0 && each > 1 ? "Sigmoid" : "Tanh");
  if (names.size() != count)
    throw Error(ErrorKind::invalid_model,
                fmt::format("attribute 'activations' has {} entries, expected {}", names.size(), count));
  // Each function that has a parameter takes the next number of the list.
  const std::vector<double> alphas = reader.reals("activation_alpha"), betas = reader.reals("activation_beta");
  auto alpha = alphas.begin();
  auto beta = betas.begin();
  for (std::size_t i = 0; i < count; ++i) {
    const Known& known = known_function(names[i]);
    Named named{std::string(known.name), known.default_alpha, known.default_beta};
    if (known.alpha && alpha != alphas.end()) named.alpha = *alpha++;
    if (known.beta && beta != betas.end()) named.beta = *beta++;
    form_.functions[i / each][i % each] = cell_function(named.name, named.alpha, named.beta);
    functions_.push_back(std::move(named));
  }
  reader.finish();
}

std::string_view RecurrentOp::type() const {
  return form_.cell == Cell::lstm ? "LSTM" : form_.cell == Cell::gru ? "GRU" : "RNN";
}

AttributeList RecurrentOp::attributes() const {
  std::vector<std::string> names;
  std::vector<double> alphas, betas;
  for (const Named& function : functions_) {
    names.push_back(function.name);
    const Known& known = known_function(function.name);
    if (known.alpha) alphas.push_back(function.alpha);
    if (known.beta) betas.push_back(function.beta);
  }
  AttributeList all{{"direction", form_.directions == 2 ? "bidirectional"
                                  : form_.reverse       ? "reverse"
                                                        : "forward"},
                    {"layout", std::int64_t{form_.batch_first}},
                    {"activations", names}};
  if (!alphas.empty()) all.emplace_back("activation_alpha", alphas);
  if (!betas.empty()) all.emplace_back("activation_beta", betas);
  if (hidden_ != 0) all.emplace_back("hidden_size", hidden_);
  if (form_.clips) all.emplace_back("clip", double{form_.clip});
  if (form_.input_forget) all.emplace_back("input_forget", std::int64_t{1});
  if (form_.linear_before_reset) all.emplace_back("linear_before_reset", std::int64_t{1});
  return all;
}

RecurrentProblem RecurrentOp::problem(std::span<const InputInfo> inputs) const {
  const TensorType &of_x = required_input(inputs, x, "X"), &of_w = required_input(inputs, w, "W");
  const TensorType& of_r = required_input(inputs, r, "R");
  require_rank("input X", of_x.shape, 3, 3);
  require_rank("input R", of_r.shape, 3, 3);
  RecurrentProblem q = form_;
  q.seq = of_x.shape[q.batch_first ? 1 : 0];
  q.batch = of_x.shape[q.batch_first ? 0 : 1];
  q.input = of_x.shape[2];
  q.hidden = of_r.shape[2];
  if (q.hidden < 1 || (hidden_ != 0 && hidden_ != q.hidden))
    throw Error(ErrorKind::invalid_model,
                fmt::format("attribute 'hidden_size' is {}, input R {}", hidden_, of_r.shape.str()));
  const Shape state = q.batch_first ? Shape{q.batch, q.directions, q.hidden} : Shape{q.directions, q.batch, q.hidden};
  require_shape("input W", of_w.shape, Shape{q.directions, q.columns(), q.input});
  require_shape("input R", of_r.shape, Shape{q.directions, q.columns(), q.hidden});
  const auto check = [&](std::size_t i, std::string_view what, const Shape& shape) {
    if (present(inputs, i)) require_shape(what, inputs[i].type.shape, shape);
  };
  check(b, "input B", Shape{q.directions, 2 * q.columns()});
  check(lengths, "input sequence_lens", Shape{q.batch});
  check(initial_h, "input initial_h", state);
  check(initial_c, "input initial_c", state);
  check(p, "input P", Shape{q.directions, 3 * q.hidden});
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].present || inputs[i].type.dtype == (i == lengths ? DType::i32 : of_x.dtype)) continue;
    throw Error(ErrorKind::invalid_model,
                fmt::format("input {} has element type {}", i, to_string(inputs[i].type.dtype)));
  }
  if (present(inputs, lengths) && inputs[lengths].constant != nullptr)
    check_lengths(q, *inputs[lengths].constant, ErrorKind::invalid_model);
  return q;
}

std::vector<TensorType> RecurrentOp::infer(std::span<const InputInfo> inputs) const {
  const RecurrentProblem q = problem(inputs);
  const DType dtype = inputs[x].type.dtype;
  const TensorType state{
      dtype, q.batch_first ? Shape{q.batch, q.directions, q.hidden} : Shape{q.directions, q.batch, q.hidden}};
  std::vector<TensorType> types(outputs_, state);
  types[y].shape =
      q.batch_first ? Shape{q.batch, q.seq, q.directions, q.hidden} : Shape{q.seq, q.directions, q.batch, q.hidden};
  return types;
}

double RecurrentOp::flops(std::span<const InputInfo> inputs, std::span<const TensorType>) const {
  const RecurrentProblem q = problem(inputs);
  return 2.0 * static_cast<double>(q.seq * q.batch) * static_cast<double>(q.all_columns()) *
         static_cast<double>(q.input + q.hidden);
}

std::optional<AxisMap> RecurrentOp::axis_map(std::span<const InputInfo> inputs, const Shape& output) const {
  AxisMap map = axes_kept(inputs.size(), {});
  // Y has one more axis than the states.
  const std::size_t batch = form_.batch_first ? 0 : output.rank() == 4 ? 2 : 1;
  const auto follow = [&](std::size_t input, int axis) {
    if (input >= inputs.size()) return;
    map.inputs[input].parameter = false;
    map.inputs[input].axis[batch] = static_cast<std::int8_t>(axis);
  };
  for (const std::size_t i : {x, initial_h, initial_c}) follow(i, form_.batch_first ? 0 : 1);
  follow(lengths, 0);
  return map;
}

// A step rounds its two sums, and 16 times after them, counted together. The errors enter the state, where gates below
// 1 damp them: the independent roundings of the last 16 steps add up to 4 times as much. (Worst error measured against
// double over 100 and 400 steps, 16 to 256 hidden units: a tenth of this.) No bound holds if recurrent weights amplify
// differences without a gate or a bound.
double recurrent_tolerance(const RecurrentProblem& q, double excess) {
  const double step = sum_tolerance(q.input + q.hidden) + excess + 16 * 0x1p-24;
  return step * std::sqrt(static_cast<double>(std::clamp<std::int64_t>(q.seq, 1, 16)));
}

void check_lengths(const RecurrentProblem& q, const Tensor& lengths, ErrorKind kind) {
  for (const std::int32_t length : lengths.values<std::int32_t>())
    if (length < 0 || length > q.seq)
      throw Error(kind, fmt::format("sequence_lens holds {}, which is outside [0,{}]", length, q.seq));
}

namespace {

constexpr SimpleKernel kernels[] = {
    {.types = dtypes<Types<float>>,
     .offer = offer_recurrent_cpu,
     .bind = bind_recurrent_cpu,
     .blob = recurrent_cpu_blob,
     .prepare = prepare_recurrent_cpu},
    {.device = DeviceKind::cuda,
     .types = dtypes<Types<float>>,
     .offer = offer_recurrent_cuda,
     .bind = bind_recurrent_cuda,
     .blob = recurrent_cuda_blob,
     .prepare = prepare_recurrent_cuda},
};

}  // namespace

OpParts recurrent() { return {make_from<RecurrentOp>, kernels}; }

}  // namespace lenslet
