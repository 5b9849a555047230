// GELU by erf or tanh and Swish, however their factors are grouped: a node is read as p + q * f, where f is an Erf,
// Tanh or Sigmoid, and p, q and f's argument are polynomials of a value x.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include "runtime/passes/spelled_activations.h"

namespace lenslet {
namespace {

constexpr int most_depth = 6;  ///< nodes from the last to x
constexpr std::size_t degree = 3;

/// Coefficients of 1, x, x^2 and x^3.
using Polynomial = std::array<double, degree + 1>;

/// p + q * f.
struct Form {
  Polynomial p{}, q{};
};

std::optional<Polynomial> product(const Polynomial& a, const Polynomial& b) {
  Polynomial ab{};
  for (std::size_t i = 0; i <= degree; ++i)
    for (std::size_t j = 0; j <= degree; ++j) {
      if (a[i] == 0 || b[j] == 0) continue;
      if (i + j > degree) return std::nullopt;
      ab[i + j] += a[i] * b[j];
    }
  return ab;
}

Polynomial sum(const Polynomial& a, const Polynomial& b) {
  Polynomial both = a;
  for (std::size_t i = 0; i <= degree; ++i) both[i] += b[i];
  return both;
}

bool is_scalar(const Form& form) {
  return form.q == Polynomial{} && std::all_of(form.p.begin() + 1, form.p.end(), [](double c) { return c == 0; });
}

std::optional<Form> product(const Form& a, const Form& b) {
  if (a.q != Polynomial{} && b.q != Polynomial{}) return std::nullopt;
  const auto pp = product(a.p, b.p), pq = product(a.p, b.q), qp = product(a.q, b.p);
  if (!pp || !pq || !qp) return std::nullopt;
  return Form{*pp, sum(*pq, *qp)};
}

/// Whether `values` are these, computed with constants of a file of type `from`: three at most.
bool are(const Polynomial& values, const Polynomial& wanted, DType from) {
  const double closeness = from == DType::f16 ? 0x1p-10 : from == DType::bf16 ? 0x1p-7 : 1e-6;
  return std::ranges::equal(values, wanted, [closeness](double value, double exact) {
    return std::abs(value - exact) <= closeness * std::abs(exact);
  });
}

class Reader {
 public:
  explicit Reader(const GraphEdit& edit) : edit_(edit), graph_(edit.graph()) {}

  /// `id` as a form in x and f.
  std::optional<Form> form(ValueId id, ValueId x, ValueId f, int depth = most_depth) const {
    if (id == x) return Form{{0, 1}, {}};
    if (id == f) return Form{{}, {1}};
    if (const auto constant = scalar_constant(graph_, id)) return Form{{double{*constant}}, {}};
    const Node* const node = operation(id);
    // A constant of higher rank would widen x.
    if (node == nullptr || depth == 0 || !(graph_.value(id).shape == graph_.value(x).shape)) return std::nullopt;
    const auto a = form(node->inputs[0], x, f, depth - 1), b = form(node->inputs[1], x, f, depth - 1);
    if (!a || !b) return std::nullopt;
    if (node->type() == "Add") return Form{sum(a->p, b->p), sum(a->q, b->q)};
    if (node->type() == "Mul") return product(*a, *b);
    if (!is_scalar(*b)) return std::nullopt;
    const double scalar = b->p[0];
    if (node->type() == "Div") return product(*a, Form{{1 / scalar}, {}});
    if (scalar != 2 && scalar != 3) return std::nullopt;  // Pow
    const auto square = product(*a, *a);
    return scalar == 3 && square ? product(*square, *a) : square;
  }

  /// Adds what `id` is computed from by operations, nearest first.
  void collect(ValueId id, std::vector<ValueId>& to, int depth = most_depth) const {
    const Node* const node = operation(id);
    if (node == nullptr || depth == 0) return;
    for (const ValueId input : node->inputs) {
      if (scalar_constant(graph_, input) || std::ranges::find(to, input) != to.end()) continue;
      to.push_back(input);
      collect(input, to, depth - 1);
    }
  }

 private:
  const Node* operation(ValueId id) const {
    const Node* const node = edit_.producer_node(id);
    if (node == nullptr || node->inputs.size() != 2) return nullptr;
    const std::string_view type = node->type();
    return type == "Add" || type == "Mul" || type == "Div" || type == "Pow" ? node : nullptr;
  }

  const GraphEdit& edit_;
  const Graph& graph_;
};

/// The node that computes p(x) + q(x) * f(argument(x)), if one does.
std::shared_ptr<const Op> op_of(std::string_view f, const Form& form, const Polynomial& argument, DType from) {
  constexpr double slope = 0.79788456080286535588;  // sqrt(2 / pi)
  const bool is_gelu = are(form.p, {0, 0.5}, from) && are(form.q, {0, 0.5}, from);
  if (is_gelu && f == "Erf" && are(argument, {0, 0.70710678118654752440}, from))
    return make_normalised_op("Gelu", {{"approximate", std::string("none")}}, 1);
  if (is_gelu && f == "Tanh" && are(argument, {0, slope, 0, 0.044715 * slope}, from))
    return make_normalised_op("Gelu", {{"approximate", std::string("tanh")}}, 1);
  const double alpha = argument[1];
  if (f == "Sigmoid" && are(form.p, {}, from) && are(form.q, {0, 1}, from) && are(argument, {0, alpha}, from) &&
      alpha != 0)
    return make_normalised_op("Swish", {{"alpha", alpha}}, 1);
  return nullptr;
}

}  // namespace

SpelledActivation spelled_gelu(const GraphEdit& edit, ValueId id) {
  const Reader reader(edit);
  std::vector<ValueId> parts;
  reader.collect(id, parts);
  for (const ValueId f : parts) {
    const Node* const function = edit.producer_node(f);
    if (function == nullptr) continue;
    const std::string_view type = function->type();
    if (type != "Erf" && type != "Tanh" && type != "Sigmoid") continue;
    for (const ValueId x : parts) {
      if (x == f) continue;
      const auto form = reader.form(id, x, f), argument = reader.form(function->inputs[0], x, no_id);
      if (!form || !argument) continue;
      if (auto op = op_of(type, *form, argument->p, edit.graph().value(id).file_type)) return {std::move(op), x};
    }
  }
  return {};
}

}  // namespace lenslet
