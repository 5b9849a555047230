#include "tests/ops/op_meaning.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <deque>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <type_traits>
#include <variant>
#include <vector>

#include "tests/expect_error.h"
#include "tests/ops/exact_activation.h"
#include "tests/ops/op_runner.h"

namespace lenslet::test {
namespace {

bool same_attributes(const AttributeList& a, const AttributeList& b) {
  const auto same = [](const AttributeValue& x, const AttributeValue& y) {
    if (const Tensor* tensor = std::get_if<Tensor>(&x))
      return std::holds_alternative<Tensor>(y) && equal(*tensor, std::get<Tensor>(y));
    return std::visit(
        [&]<typename T>(const T& of_x) {
          if constexpr (std::is_same_v<T, Tensor>)
            return false;
          else
            return std::holds_alternative<T>(y) && of_x == std::get<T>(y);
        },
        x);
  };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](const auto& x, const auto& y) { return x.first == y.first && same(x.second, y.second); });
}

/// The operator of a case on one thread of the CPU, bound once and unchecked.
class PlainOp {
 public:
  PlainOp(const OpCase& c, std::shared_ptr<const Op> op)
      : device_(cpu_profile(1)), problem_(std::move(op), infos_of(c.inputs, c.constant)) {
    for (const Kernel* kernel : kernels_of(problem_.op().type(), DeviceKind::cpu)) {
      Offer offer = kernel->offer(problem_, {.device = device_});
      if (!offer.refusal.empty()) continue;
      candidate_ = std::move(offer.candidates.at(0));
      bound_ = kernel->bind({problem_, candidate_, device_});
      if (const auto spec = kernel->blob(problem_, candidate_)) {
        blob_ = std::make_unique<HostBlock>(spec->bytes, spec->alignment);
        kernel->prepare(problem_, candidate_, {blob_->data(), spec->bytes});
      }
      return;
    }
    FAIL("no kernel takes it");
  }

  const Problem& problem() const { return problem_; }
  const Candidate& candidate() const { return candidate_; }

  /// Format nchw, like the inputs.
  std::vector<Tensor> run(const std::vector<Tensor>& values) const {
    std::vector<Tensor> inputs, outputs;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const bool constant = problem_.inputs()[i].constant != nullptr;
      const bool read = !values[i].empty() && (!constant || (candidate_.reads & input_bit(i)) != 0);
      inputs.push_back(read ? values[i].to_format(candidate_.inputs[i]) : Tensor());
    }
    std::deque<HostBlock> memory;
    for (std::size_t i = 0; i < problem_.outputs().size(); ++i) {
      const auto& [dtype, shape] = problem_.outputs()[i];
      HostBlock& block = memory.emplace_back(stored_bytes(problem_.outputs()[i], candidate_.outputs[i]));
      outputs.push_back(Tensor::view(dtype, shape, block.data(), candidate_.outputs[i]));
    }
    HostBlock workspace(candidate_.workspace_bytes);
    ThreadPool pool(1);
    bound_->run({.inputs = inputs,
                 .outputs = outputs,
                 .workspace = {workspace.data(), workspace.bytes()},
                 .blob = blob_ != nullptr ? blob_->data() : nullptr,
                 .pool = &pool});
    for (Tensor& output : outputs) output = output.to_format(formats::nchw);
    return outputs;
  }

 private:
  DeviceProfile device_;
  Problem problem_;
  Candidate candidate_;
  std::unique_ptr<const BoundKernel> bound_;
  std::unique_ptr<HostBlock> blob_;
};

/// The position of element `at` in a shape, by axis.
std::array<std::int64_t, Shape::max_rank> index_of(std::int64_t at, const Shape& shape) {
  std::array<std::int64_t, Shape::max_rank> index{};
  for (int axis = shape.rank(); axis-- > 0; at /= shape[axis]) index[static_cast<std::size_t>(axis)] = at % shape[axis];
  return index;
}

/// `input` with element `at` negated and moved away from zero, a change that few operators hide.
Tensor changed(const Tensor& input, std::int64_t at) {
  Tensor copy = input.clone();
  const auto change = [&]<typename T>(T& value) { value = value > 0 ? -value - 1 : 1 - value; };
  const auto i = static_cast<std::size_t>(at);
  if (input.dtype() == DType::f32)
    change(copy.values<float>()[i]);
  else
    change(copy.values<double>()[i]);
  return copy;
}

/// The first element of `after` that differs from `before` at a position that is not allowed; empty if there is none.
template <typename Allowed>
std::optional<std::int64_t> wrong_change(const Tensor& before, const Tensor& after, const Allowed& allowed) {
  const std::size_t bytes = dtype_bytes(before.dtype());
  const auto* a = static_cast<const std::byte*>(before.data());
  const auto* b = static_cast<const std::byte*>(after.data());
  for (std::int64_t i = 0; i < before.elems(); ++i, a += bytes, b += bytes)
    if (std::memcmp(a, b, bytes) != 0 && !allowed(i)) return i;
  return std::nullopt;
}

/// Moves axis `i` to to[i]; axes that `x` lacks are added in front, with size 1.
Tensor permute(const Tensor& x, const std::vector<int>& to) {
  const int rank = static_cast<int>(to.size());
  std::vector<std::int64_t> dims(to.size(), 1);
  std::copy(x.shape().dims().begin(), x.shape().dims().end(), dims.end() - x.shape().rank());
  const Shape full(dims);
  for (int axis = 0; axis < rank; ++axis)
    dims[static_cast<std::size_t>(to[static_cast<std::size_t>(axis)])] = full[axis];
  Tensor y(x.dtype(), Shape(dims));
  std::array<std::int64_t, Shape::max_rank> step{};  // in y, of axis i of x
  for (int axis = rank; axis-- > 0;) {
    std::int64_t& own = step[static_cast<std::size_t>(axis)] = 1;
    for (int inner = to[static_cast<std::size_t>(axis)] + 1; inner < rank; ++inner) own *= y.shape()[inner];
  }
  const std::size_t bytes = dtype_bytes(x.dtype());
  for (std::int64_t i = 0; i < x.elems(); ++i) {
    const auto from = index_of(i, full);
    const std::int64_t at = std::inner_product(from.begin(), from.end(), step.begin(), std::int64_t{0});
    std::memcpy(static_cast<std::byte*>(y.data()) + static_cast<std::size_t>(at) * bytes,
                static_cast<const std::byte*>(x.data()) + static_cast<std::size_t>(i) * bytes, bytes);
  }
  return y;
}

/// Equal except for the order of summation.
bool nearly_same(const Tensor& a, const Tensor& b) {
  if (equal(a, b)) return true;
  if (a.dtype() != b.dtype() || !(a.shape() == b.shape()) || a.dtype() != DType::f32) return false;
  const auto x = a.values<float>(), y = b.values<float>();
  double squares = 0;
  for (const float value : x) squares += std::isfinite(value) ? double{value} * double{value} : 0;
  const double allowed = 1e-5 * std::sqrt(squares / static_cast<double>(x.size()));
  for (std::size_t i = 0; i < x.size(); ++i)
    if (!(std::abs(double{x[i]} - double{y[i]}) <= allowed) && !(std::isnan(x[i]) && std::isnan(y[i])) && x[i] != y[i])
      return false;
  return true;
}

/// Orders of `rank` axes: channels first and last, reversed, and two random ones.
std::vector<std::vector<int>> orders(int rank) {
  std::vector<int> order(static_cast<std::size_t>(rank));
  std::iota(order.begin(), order.end(), 0);
  std::vector<std::vector<int>> all;
  if (rank > 2) {
    std::rotate(order.begin() + 1, order.begin() + 2, order.end());
    all.push_back(order);  // [0,2,3,1]
    std::sort(order.begin(), order.end());
    std::rotate(order.begin() + 1, order.end() - 1, order.end());
    all.push_back(order);  // [0,3,1,2]
  }
  std::sort(order.rbegin(), order.rend());
  all.push_back(order);
  std::mt19937 random(1);
  for (int i = 0; i < 2; ++i) {
    std::shuffle(order.begin(), order.end(), random);
    all.push_back(order);
  }
  return all;
}

}  // namespace

void check_unknown_attribute(const OpCase& c, const std::string& where) {
  if (c.op == "Constant") return;  // counts attributes
  OpCase with_unknown = c;
  with_unknown.attributes.emplace_back("no_such_attribute", std::int64_t{1});
  const auto make = [&] { make_op(with_unknown); };
  CHECK_MESSAGE(contains(refusal_of(ErrorKind::unsupported, make), "'no_such_attribute' is not supported"), where,
                " takes an attribute that there is not");
}

void check_round_trip(const OpCase& c, const std::shared_ptr<const Op>& op, const std::string& where) {
  CHECK_MESSAGE(op->type() == c.op, where, " calls itself ", std::string(op->type()));
  const auto again = make_normalised_op(op->type(), op->attributes(), c.inputs.size(), c.outputs);
  CHECK_MESSAGE(again->type() == op->type(), where);
  CHECK_MESSAGE(same_attributes(again->attributes(), op->attributes()), where, " made again has the attributes ",
                to_string(again->attributes()));
  std::vector<int> constant = c.constant;
  constant.insert(constant.end(), c.maybe_constant.begin(), c.maybe_constant.end());
  for (const std::vector<InputInfo>& infos : {infos_of(c.inputs, c.constant), infos_of(c.inputs, constant)})
    CHECK_MESSAGE((again->infer(infos) == op->infer(infos)), where, " made again gives other types");
  const std::vector<Tensor> first = PlainOp(c, op).run(c.inputs), second = PlainOp(c, again).run(c.inputs);
  CHECK_MESSAGE(std::equal(first.begin(), first.end(), second.begin(), second.end(), equal), where,
                " made again gives other bits");
}

void check_axis_map(const OpCase& c, const std::shared_ptr<const Op>& op, const std::string& where) {
  const PlainOp plain(c, op);
  const Problem& problem = plain.problem();
  std::vector<AxisMap> maps;  // of the outputs
  for (const TensorType& output : problem.outputs()) {
    std::optional<AxisMap> map = op->axis_map(problem.inputs(), output.shape);
    if (!map) return;
    REQUIRE_MESSAGE(map->inputs.size() == c.inputs.size(), where, ": axis map of other inputs");
    maps.push_back(std::move(*map));
  }
  const std::vector<Tensor> before = plain.run(c.inputs);
  std::mt19937 random(1);
  for (std::size_t i = 0; i < c.inputs.size(); ++i) {
    const Tensor& input = c.inputs[i];
    const bool is_float = input.dtype() == DType::f32 || input.dtype() == DType::f64;
    const auto& axes = maps[0].inputs[i].axis;
    const bool follows = std::ranges::any_of(axes, [](int axis) { return axis != AxisMap::none; });
    CHECK_MESSAGE(!(maps[0].inputs[i].parameter && follows), where, ": axes follow input ", i, ", a parameter");
    if (input.empty() || maps[0].inputs[i].parameter || contains(c.constant, i)) continue;
    for (std::size_t o = 0; o < before.size(); ++o)
      for (int axis = 0; axis < Shape::max_rank; ++axis)
        if (const int of_input = maps[o].inputs[i].axis[static_cast<std::size_t>(axis)]; of_input != AxisMap::none)
          REQUIRE_MESSAGE((of_input < input.shape().rank() && axis < before[o].shape().rank() &&
                           input.shape()[of_input] == before[o].shape()[axis]),
                          where, ": axis ", axis, " of ", before[o].shape().str(), " cannot follow axis ", of_input,
                          " of input ", i);
    if (!is_float || input.elems() == 0) continue;
    for (int repeat = 0; repeat < 2; ++repeat) {
      const std::int64_t at = std::uniform_int_distribution<std::int64_t>(0, input.elems() - 1)(random);
      const auto from = index_of(at, input.shape());
      std::vector<Tensor> inputs = c.inputs;
      inputs[i] = changed(input, at);
      const std::vector<Tensor> after = plain.run(inputs);
      for (std::size_t o = 0; o < before.size(); ++o) {
        const Shape& shape = before[o].shape();
        const auto wrong = wrong_change(before[o], after[o], [&](std::int64_t element) {
          if (maps[o].keeps_order && i == 0 && element != at) return false;
          const auto to = index_of(element, shape);
          for (std::size_t axis = 0; axis < static_cast<std::size_t>(shape.rank()); ++axis)
            if (const int of_input = maps[o].inputs[i].axis[axis]; of_input != AxisMap::none)
              if (to[axis] != from[static_cast<std::size_t>(of_input)]) return false;
          return true;
        });
        CHECK_MESSAGE(!wrong, fmt::format("{}: element {} of input {} changes element {} of output {}", where, at, i,
                                          wrong.value_or(-1), o));
      }
    }
  }
}

void check_permuted(const OpCase& c, const std::shared_ptr<const Op>& op, const std::string& where) {
  if (c.outputs != 1 || c.inputs.empty()) return;
  int most = 0;
  for (const Tensor& input : c.inputs)
    if (!input.empty()) most = std::max(most, input.shape().rank());
  std::vector<int> known = c.constant;
  known.insert(known.end(), c.maybe_constant.begin(), c.maybe_constant.end());
  std::optional<Tensor> plain;
  std::vector<std::vector<int>> constant_sets{c.constant};
  if (!c.maybe_constant.empty()) constant_sets.push_back(known);
  for (const std::vector<int>& constant : constant_sets) {
    const std::vector<InputInfo> infos = infos_of(c.inputs, constant);
    for (int rank = 2; rank <= most; ++rank)
      for (const std::vector<int>& to : orders(rank)) {
        // The axes of operators that are not elementwise are those of input 0.
        if (op->elementwise_inputs() == 0 && (c.inputs[0].empty() || c.inputs[0].shape().rank() != rank)) continue;
        const std::optional<PermutedOp> permuted = op->permuted(to, infos);
        if (!permuted) continue;
        OpCase other{.op = c.op, .outputs = 1};
        for (const PermutedOp::Input& input : permuted->inputs) {
          const Tensor& x = c.inputs.at(input.number);
          const bool is_known = !input.instead.empty() || contains(constant, input.number);
          if (is_known) other.constant.push_back(static_cast<int>(other.inputs.size()));
          other.inputs.push_back(!input.instead.empty() ? input.instead.clone() : input.permuted ? permute(x, to) : x);
        }
        if (!plain) plain = PlainOp(c, op).run(c.inputs)[0];
        const Tensor expected = permuted->same_result ? *plain : permute(*plain, to);
        const Tensor got = PlainOp(other, permuted->op != nullptr ? permuted->op : op).run(other.inputs)[0];
        CHECK_MESSAGE(nearly_same(expected, got), where, " on permuted axes [", fmt::format("{}", fmt::join(to, ",")),
                      "] gives ", got.shape().str(), " or other values");
      }
  }
}

void check_formulas(const OpCase& c, const std::shared_ptr<const Op>& op, const std::string& where) {
  std::optional<Tensor> y;
  const auto compare = [&](const Tensor& x, const char* what, const auto& formula) {
    if (!y) y = PlainOp(c, op).run(c.inputs)[0];
    REQUIRE_MESSAGE(y->shape() == x.shape(), where);
    const std::span<const float> from = x.values<float>(), got = y->values<float>();
    for (std::size_t i = 0; i < from.size(); ++i) {
      const double exact = formula(double{from[i]}, static_cast<std::int64_t>(i)), value = double{got[i]};
      if (value == exact || std::abs(value - exact) <= 1e-5 * (1 + std::abs(exact)) || std::isnan(value)) continue;
      FAIL_CHECK(where << ": " << what << " gives " << exact << " for " << from[i] << ", the operator " << value);
      return;
    }
  };
  for (std::size_t side = 0; side < c.inputs.size() && c.outputs == 1; ++side) {
    const Tensor& x = c.inputs[side];
    if (x.empty() || x.dtype() != DType::f32 || x.elems() == 0 || contains(c.constant, side)) continue;
    std::vector<int> others;  // everything else is constant
    for (std::size_t i = 0; i < c.inputs.size(); ++i)
      if (i != side) others.push_back(static_cast<int>(i));
    const std::vector<InputInfo> infos = infos_of(c.inputs, others);
    if (side == 0)
      if (const auto activation = op->as_activation(infos))
        compare(x, "its activation",
                [of = exact_activation(*activation)](double value, std::int64_t) { return of(value); });
    const Shape shape = op->infer(infos).at(0).shape;
    if (const auto affine = op->as_channel_affine(infos, side, shape))
      compare(x, "what it does to channels", [&](double value, std::int64_t i) {
        const auto channel = static_cast<std::size_t>(index_of(i, shape)[1]);
        return affine->factor.at(channel) * value + affine->offset.at(channel);
      });
  }
}

void check_copies(const OpCase& c, const std::shared_ptr<const Op>& op, const std::string& where) {
  const PlainOp plain(c, op);
  const int alias = op->alias_input();
  const bool given_back = !c.inputs.empty() && op->gives_input_back(plain.problem().inputs());
  if (alias < 0 && !given_back) return;
  const Tensor output = plain.run(c.inputs)[0];
  if (alias >= 0) {
    const auto i = static_cast<std::size_t>(alias);
    const Tensor y = output.to_format(plain.candidate().outputs[0]);
    const Tensor x = c.inputs.at(i).to_format(plain.candidate().inputs[i]);
    CHECK_MESSAGE((y.bytes() == x.bytes() && (y.bytes() == 0 || std::memcmp(y.data(), x.data(), y.bytes()) == 0)),
                  where, ": output 0 has not the bytes of input ", alias);
  }
  if (given_back) CHECK_MESSAGE(equal(output, c.inputs[0]), where, ": output 0 is not input 0");
}

}  // namespace lenslet::test
