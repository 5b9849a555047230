// References of LSTM, GRU and RNN: the equations of the ONNX specification, step by step.

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "lenslet/error.h"
#include "oracle/families.h"

namespace lenslet::oracle {

namespace {

using Function = std::function<double(double)>;

// The activations of all directions. Normalised attributes name each one and give all its alphas and betas.
std::vector<Function> functions_of(const AttributeList& attributes) {
  const std::vector<double> alphas = reals(attributes, "activation_alpha"),
                            betas = reals(attributes, "activation_beta");
  std::size_t next_alpha = 0, next_beta = 0;
  std::vector<Function> all;
  const auto add = [&](const std::string& name) -> Function {
    const auto alpha = [&] { return alphas.at(next_alpha++); };
    const auto beta = [&] { return betas.at(next_beta++); };
    if (name == "Relu") return [](double x) { return x < 0 ? 0 : x; };
    if (name == "Tanh") return [](double x) { return std::tanh(x); };
    if (name == "Sigmoid") return [](double x) { return 1 / (1 + std::exp(-x)); };
    if (name == "Affine") return [a = alpha(), b = beta()](double x) { return a * x + b; };
    if (name == "LeakyRelu") return [a = alpha()](double x) { return x < 0 ? a * x : x; };
    if (name == "ThresholdedRelu") return [a = alpha()](double x) { return x <= a ? 0 : x; };
    if (name == "ScaledTanh") return [a = alpha(), b = beta()](double x) { return a * std::tanh(b * x); };
    if (name == "HardSigmoid")
      return [a = alpha(), b = beta()](double x) {
        const double line = a * x + b;
        return line < 0 ? 0 : line > 1 ? 1 : line;
      };
    if (name == "Elu") return [a = alpha()](double x) { return x < 0 ? a * std::expm1(x) : x; };
    if (name == "Softsign") return [](double x) { return x / (1 + std::abs(x)); };
    if (name == "Softplus") return [](double x) { return std::log1p(std::exp(-std::abs(x))) + (x < 0 ? 0 : x); };
    throw Error(ErrorKind::invalid_argument, "oracle: activation " + name);
  };
  for (const auto& [key, value] : attributes)
    if (key == "activations")
      for (const std::string& name : std::get<std::vector<std::string>>(value)) all.push_back(add(name));
  return all;
}

// Later steps propagate the rounding of earlier ones, so a state carries its own scale.
Scaled operator*(const Scaled& a, const Scaled& b) {
  return {a.value * b.value, std::hypot(a.scale * b.value, a.value * b.scale)};
}
Scaled operator+(const Scaled& a, const Scaled& b) { return {a.value + b.value, std::hypot(a.scale, b.scale)}; }
Scaled exactly(double value) { return {value, std::fabs(value)}; }
Scaled rest_of(const Scaled& share) { return {1 - share.value, std::hypot(1, share.scale)}; }

enum class Kind { lstm, gru, rnn };

std::vector<Array> recurrent(Kind kind, const AttributeList& attributes, Inputs inputs) {
  const Array &x = at(inputs, 0), &w = at(inputs, 1), &r = at(inputs, 2);
  const bool by_batch = integer(attributes, "layout", 0) == 1;
  const std::int64_t seq = x.shape[by_batch ? 1 : 0], batch = x.shape[by_batch ? 0 : 1], size = x.shape[2];
  const std::int64_t directions = w.shape[0], hidden = r.shape[2], rows = w.shape[1];  // gates * hidden
  const bool reverse = text(attributes, "direction", "forward") == "reverse";
  const bool coupled = integer(attributes, "input_forget", 0) != 0;
  const bool before_reset = integer(attributes, "linear_before_reset", 0) != 0;
  const double bound = real(attributes, "clip", std::numeric_limits<double>::infinity());
  const auto clip = [&](const Scaled& v) {
    return Scaled{v.value < -bound ? -bound : v.value > bound ? bound : v.value, v.scale};
  };
  const std::vector<Function> functions = functions_of(attributes);
  const std::size_t each = functions.size() / static_cast<std::size_t>(directions);

  const Shape states = by_batch ? Shape{batch, directions, hidden} : Shape{directions, batch, hidden};
  Array y = sums(by_batch ? Shape{batch, seq, directions, hidden} : Shape{seq, directions, batch, hidden}, x.dtype);
  Array y_h = sums(states, x.dtype), y_c = sums(states, x.dtype);
  const auto put_all = [](Array& to, std::int64_t first, const std::vector<Scaled>& from) {
    for (std::size_t j = 0; j < from.size(); ++j) put(to, static_cast<std::size_t>(first) + j, from[j]);
  };
  const auto element = [](const Array& of, std::int64_t i) { return of.values[static_cast<std::size_t>(i)]; };

  for (std::int64_t d = 0; d < directions; ++d)
    for (std::int64_t b = 0; b < batch; ++b) {
      const std::int64_t length = has(inputs, 4) ? as_integers(inputs[4]).at(static_cast<std::size_t>(b)) : seq;
      const std::int64_t state = (by_batch ? b * directions + d : d * batch + b) * hidden;
      std::vector<Scaled> h(static_cast<std::size_t>(hidden)), c = h;
      for (std::size_t j = 0; j < h.size(); ++j) {
        if (has(inputs, 5)) h[j] = exactly(element(inputs[5], state + static_cast<std::int64_t>(j)));
        if (has(inputs, 6)) c[j] = exactly(element(inputs[6], state + static_cast<std::int64_t>(j)));
      }
      const auto f = [&](std::size_t i, const Scaled& v) {
        return through(functions[static_cast<std::size_t>(d) * each + i], v.value, v.scale);
      };
      const auto bias = [&](std::int64_t row, bool of_r) {
        return has(inputs, 3) ? element(inputs[3], 2 * d * rows + (of_r ? rows : 0) + row) : 0;
      };
      const auto peephole = [&](int gate, std::int64_t j, const Scaled& of_c) {
        return has(inputs, 7) ? exactly(element(inputs[7], (d * 3 + gate) * hidden + j)) * of_c : Scaled{};
      };
      for (std::int64_t i = 0; i < length; ++i) {
        const std::int64_t t = reverse || d == 1 ? length - 1 - i : i;
        const std::int64_t from = (by_batch ? b * seq + t : t * batch + b) * size;
        // Row `row` of X W^T, and of v R^T.
        const auto of_x = [&](std::int64_t row) {
          Sum sum;
          sum.add(bias(row, false));
          for (std::int64_t k = 0; k < size; ++k)
            sum.add(element(x, from + k) * element(w, (d * rows + row) * size + k));
          return Scaled{sum.value, sum.scale()};
        };
        const auto of_state = [&](std::int64_t row, const std::vector<Scaled>& v) {
          Sum sum;
          sum.add(bias(row, true));
          for (std::int64_t k = 0; k < hidden; ++k) {
            const Scaled& of_v = v[static_cast<std::size_t>(k)];
            const double weight = element(r, (d * rows + row) * hidden + k);
            sum.add(of_v.value * weight, of_v.scale * weight);
          }
          return Scaled{sum.value, sum.scale()};
        };
        std::vector<Scaled> next = h, scaled = h;
        if (kind == Kind::gru)
          for (std::int64_t j = 0; j < hidden; ++j)
            scaled[static_cast<std::size_t>(j)] =
                scaled[static_cast<std::size_t>(j)] * f(0, clip(of_x(hidden + j) + of_state(hidden + j, h)));
        for (std::int64_t j = 0; j < hidden; ++j) {
          const auto at_j = static_cast<std::size_t>(j);
          const auto gate = [&](int g) { return of_x(g * hidden + j) + of_state(g * hidden + j, h); };
          if (kind == Kind::lstm) {
            const Scaled in = f(0, clip(gate(0) + peephole(0, j, c[at_j])));
            const Scaled forget = coupled ? rest_of(in) : f(0, clip(gate(2) + peephole(2, j, c[at_j])));
            c[at_j] = forget * c[at_j] + in * f(1, clip(gate(3)));
            next[at_j] = f(0, clip(gate(1) + peephole(1, j, c[at_j]))) * f(2, c[at_j]);
          } else if (kind == Kind::gru) {
            const Scaled update = f(0, clip(gate(0))), reset = f(0, clip(gate(1)));
            const std::int64_t row = 2 * hidden + j;
            const Scaled candidate =
                f(1, clip(of_x(row) + (before_reset ? reset * of_state(row, h) : of_state(row, scaled))));
            next[at_j] = rest_of(update) * candidate + update * h[at_j];
          } else {
            next[at_j] = f(0, clip(gate(0)));
          }
        }
        h = next;
        const std::int64_t to = (by_batch ? (b * seq + t) * directions + d : (t * directions + d) * batch + b) * hidden;
        put_all(y, to, h);
      }
      if (length == 0) continue;
      put_all(y_h, state, h);
      put_all(y_c, state, c);
    }
  if (kind == Kind::lstm) return {y, y_h, y_c};
  return {y, y_h};
}

std::vector<Array> lstm(const AttributeList& attributes, Inputs inputs) {
  return recurrent(Kind::lstm, attributes, inputs);
}
std::vector<Array> gru(const AttributeList& attributes, Inputs inputs) {
  return recurrent(Kind::gru, attributes, inputs);
}
std::vector<Array> rnn(const AttributeList& attributes, Inputs inputs) {
  return recurrent(Kind::rnn, attributes, inputs);
}

constexpr Entry entries[] = {{"LSTM", lstm}, {"GRU", gru}, {"RNN", rnn}};

}  // namespace

std::span<const Entry> recurrent_entries() { return entries; }

}  // namespace lenslet::oracle
