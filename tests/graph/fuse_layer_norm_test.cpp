// fuse_layer_norm: spelled normalisations become one step, with equal results; others stay.
#include <doctest/doctest.h>

#include <algorithm>
#include <ranges>

#include "graph_builder.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

using Ints = std::vector<std::int64_t>;

struct Spelling {
  Ints axes{-1};
  bool axes_as_input = false, by_product = false, distance_twice = false;
  enum class Quotient { of_root, times_reciprocal, times_one_over_root } quotient = Quotient::of_root;
  bool inverse_first = false;  ///< of the product
  float epsilon = 1e-5F;
  bool centered = true;  ///< else RMSNormalization
};
constexpr Spelling::Quotient reciprocal = Spelling::Quotient::times_reciprocal;
constexpr Spelling::Quotient one_over = Spelling::Quotient::times_one_over_root;

ValueId mean(GraphBuilder& b, ValueId x, const Spelling& s) {
  if (!s.axes_as_input) return b.node("ReduceMean", {x}, {{"axes", s.axes}}, 13);
  const Shape count{static_cast<std::int64_t>(s.axes.size())};
  return b.node("ReduceMean", {x, b.constant(Tensor::of<std::int64_t>(count, std::span(s.axes)))}, {}, 18);
}
ValueId distance(GraphBuilder& b, ValueId x, const Spelling& s) { return b.node("Sub", {x, mean(b, x, s)}); }
ValueId root_of(GraphBuilder& b, ValueId d, const Spelling& s = {}) {
  const ValueId square = s.by_product ? b.node("Mul", {d, d}) : b.node("Pow", {d, b.scalar(2)});
  return b.node("Sqrt", {b.node("Add", {mean(b, square, s), b.scalar(s.epsilon)})});
}
ValueId quotient(GraphBuilder& b, ValueId d, ValueId root, const Spelling& s = {}) {
  if (s.quotient == Spelling::Quotient::of_root) return b.node("Div", {d, root});
  const ValueId inverse = s.quotient == reciprocal ? b.node("Reciprocal", {root}) : b.node("Div", {b.scalar(1), root});
  return s.inverse_first ? b.node("Mul", {inverse, d}) : b.node("Mul", {d, inverse});
}
/// Without scale and bias.
ValueId normalised(GraphBuilder& b, ValueId x, const Spelling& s = {}) {
  const ValueId d = s.centered ? distance(b, x, s) : x;
  return quotient(b, d, root_of(b, s.distance_twice ? distance(b, x, s) : d, s), s);
}
int normalisations(const Graph& graph) { return count(graph, "LayerNormalization") + count(graph, "RMSNormalization"); }
/// The pass, all passes, and all others give equal results.
void check_results(const Graph& before, const Graph& fused) {
  CHECK(worst_difference(before, fused) < 1e-5);
  CHECK(worst_difference(before, after_all(before)) < 1e-5);
  CHECK(worst_difference(after_all(before, {"fuse_layer_norm"}), after_all(before)) < 1e-5);
}

}  // namespace

TEST_CASE("fuse_layer_norm/spellings") {
  const Spelling spellings[] = {{},
                                {.axes = {3}},
                                {.axes = {2, 3}},
                                {.axes = {-1, -2, -3}},
                                {.axes_as_input = true},
                                {.by_product = true},
                                {.quotient = reciprocal},
                                {.quotient = one_over},
                                {.quotient = reciprocal, .inverse_first = true},
                                {.quotient = one_over, .inverse_first = true},
                                {.distance_twice = true},
                                {.epsilon = 0.25F}};
  for (const Spelling& s : spellings) {
    CAPTURE(s.axes.size());
    GraphBuilder b;
    const ValueId x = b.input("x", {2, 3, 4, 5});
    const Shape row = s.axes.size() == 1 ? Shape{5} : s.axes.size() == 2 ? Shape{4, 5} : Shape{3, 4, 5};
    b.output(b.node("Add", {b.node("Mul", {normalised(b, x, s), b.weights(row)}), b.weights(row)}));
    const Graph before = b.build(), fused = after(before, "fuse_layer_norm");
    CHECK(fused.nodes.size() == 1);
    CHECK(only(fused, "LayerNormalization").inputs.size() == 3);
    check_results(before, fused);
  }
}

// The bias stays a node of its own: RMSNormalization has none.
TEST_CASE("fuse_layer_norm/root_mean_squares") {
  const Spelling spellings[] = {{},
                                {.axes = {2}},
                                {.axes = {1, 2}},
                                {.axes = {-1, -2, -3}},
                                {.axes_as_input = true},
                                {.by_product = true},
                                {.quotient = reciprocal},
                                {.quotient = one_over},
                                {.by_product = true, .quotient = reciprocal, .inverse_first = true},
                                {.quotient = one_over, .inverse_first = true},
                                {.epsilon = 0.25F},
                                {.epsilon = 0}};
  for (Spelling s : spellings) {
    s.centered = false;
    CAPTURE(s.axes.size());
    GraphBuilder b;
    const ValueId x = b.input("x", {2, 3, 5});
    const Shape row = s.axes.size() == 1 ? Shape{5} : s.axes.size() == 2 ? Shape{3, 5} : Shape{2, 3, 5};
    b.output(b.node("Add", {b.node("Mul", {b.weights(row), normalised(b, x, s)}), b.weights(row)}));
    const Graph before = b.build(), fused = after(before, "fuse_layer_norm");
    CHECK(fused.nodes.size() == 2);
    const Node& norm = only(fused, "RMSNormalization");
    CHECK(norm.inputs.size() == 2);
    CHECK(integer_attribute(*norm.op, "axis") == 3 - std::int64_t(s.axes.size()));
    CHECK(attribute<double>(*norm.op, "epsilon") == static_cast<double>(s.epsilon));
    check_results(before, fused);
  }
}

TEST_CASE("fuse_layer_norm/parts") {
  GraphBuilder b;
  const ValueId x = b.input("x", {2, 3, 5});
  std::size_t nodes = 1;
  SUBCASE("neither scale nor bias") { b.output(normalised(b, x)); }
  SUBCASE("scale alone, first") { b.output(b.node("Mul", {b.weights({5}), normalised(b, x)})); }
  SUBCASE("bias alone") { b.output(b.node("Add", {b.weights({1, 5}), normalised(b, x)})); }
  SUBCASE("a scale that is no row stays") {
    nodes = 2;
    b.output(b.node("Mul", {normalised(b, x), b.weights({3, 1})}));
  }
  SUBCASE("a bias of higher rank stays") {
    nodes = 2;
    b.output(b.node("Add", {normalised(b, x), b.weights({1, 1, 1, 5})}));
  }
  SUBCASE("a computed scale stays") {
    nodes = 2;
    b.output(b.node("Mul", {normalised(b, x), b.input("scale", {5})}));
  }
  SUBCASE("read before the scale") {
    nodes = 2;
    const ValueId y = normalised(b, x);
    b.output(y);
    b.output(b.node("Mul", {y, b.weights({5})}));
  }
  SUBCASE("what others read stays") {
    nodes = 3;
    const ValueId m = b.node("ReduceMean", {x}, {{"axes", Ints{-1}}}, 13), d = b.node("Sub", {x, m});
    const ValueId v = b.node("ReduceMean", {b.node("Mul", {d, d})}, {{"axes", Ints{-1}}}, 13);
    b.output(d);
    b.output(b.node("Div", {d, b.node("Sqrt", {b.node("Add", {b.scalar(1e-3F), v})})}));
  }
  const Graph before = b.build(), fused = after(before, "fuse_layer_norm");
  CHECK(fused.nodes.size() == nodes);
  CHECK(count(fused, "LayerNormalization") == 1);
  CHECK(worst_difference(before, fused) < 1e-5);
}

TEST_CASE("fuse_layer_norm/parts_of_root_mean_squares") {
  GraphBuilder b;
  const ValueId x = b.input("x", {2, 3, 5}), root = root_of(b, x), y = quotient(b, x, root, {.quotient = one_over});
  std::size_t nodes = 1;
  int norms = 1;
  SUBCASE("no scale") { b.output(y); }
  SUBCASE("a bias without a scale stays") {
    nodes = 2;
    b.output(b.node("Add", {y, b.weights({5})}));
  }
  SUBCASE("a scale that is no row stays") {
    nodes = 2;
    b.output(b.node("Mul", {y, b.weights({3, 1})}));
  }
  SUBCASE("a computed scale stays") {
    nodes = 2;
    b.output(b.node("Mul", {b.input("scale", {5}), y}));
  }
  SUBCASE("read before the scale") {
    nodes = 2;
    b.output(y);
    b.output(b.node("Mul", {y, b.weights({5})}));
  }
  SUBCASE("the root is an output") {
    nodes = 5;
    b.output(root);
    b.output(b.node("Mul", {y, b.weights({5})}));
  }
  SUBCASE("two by one root") {
    nodes = norms = 2;
    b.output(b.node("Mul", {y, b.weights({5})}));
    b.output(quotient(b, x, root));
  }
  SUBCASE("x is an inverse") {
    nodes = 4;
    const ValueId inverse = b.node("Reciprocal", {b.node("Add", {b.node("Exp", {x}), b.scalar(1)})});
    b.output(normalised(b, inverse, {.quotient = reciprocal, .centered = false}));
  }
  SUBCASE("of distances from a mean over other axes") {
    nodes = 3;
    b.output(normalised(b, distance(b, x, {.axes = {1}}), {.centered = false}));
  }
  const Graph before = b.build(), fused = after(after(before, "drop_dead"), "fuse_layer_norm");
  INFO(fused.dump());
  CHECK(fused.nodes.size() == nodes);
  CHECK(count(fused, "RMSNormalization") == norms);
  CHECK(count(fused, "LayerNormalization") == 0);
  check_results(before, fused);
}

TEST_CASE("fuse_layer_norm/over_channels") {
  for (const bool centered : {true, false})
    for (const Spelling::Quotient quotient : {Spelling::Quotient::of_root, one_over}) {
      GraphBuilder b;
      const ValueId x = b.input("x", {2, 6, 4, 5});
      ValueId y = normalised(b, x, {.axes = {1}, .quotient = quotient, .centered = centered});
      y = b.node("Mul", {y, b.weights({6, 1, 1})});
      b.output(b.conv(b.node("Add", {y, b.weights({1, 6, 1, 1})}), 6, 3, 1));
      const Graph before = b.build(), fused = after(before, "fuse_layer_norm");
      CHECK(count(fused, centered ? "LayerNormalization" : "RMSNormalization") == 1);
      CHECK(fused.nodes.size() == (centered ? 4 : 5));  // between Transposes
      check_results(before, fused);
    }
}

// On CUDA in 16 bits nothing moves or changes its type between the convolutions.
TEST_CASE("fuse_layer_norm/between_convolutions_in_16_bits") {
  for (const bool centered : {true, false})
    for (const char* precision : {"fp16", "bf16"}) {
      GraphBuilder b;
      ValueId y = b.conv(b.input("x", {-1, 16, 28, 28}), 16, 40, 3, 1);
      y = normalised(b, y, {.axes = {1}, .quotient = one_over, .centered = centered});
      b.output(b.conv(b.node("Mul", {y, b.weights({40, 1, 1})}), 40, 40, 3, 1));
      const Graph all =
          after_all(b.build(8), {.target = {reference_gpu(), parse_numerics(precision)}, .device = "cuda:0"});
      INFO(all.dump());
      const std::string op = centered ? "LayerNormalization" : "RMSNormalization";
      const auto is_conv = [](const Node& node) { return node.type() == "Conv"; };
      std::vector<std::string> between;
      for (auto node = std::ranges::find_if(all.nodes, is_conv) + 1; node != all.nodes.end() && !is_conv(*node); ++node)
        between.emplace_back(node->type());
      CHECK(between == std::vector<std::string>{"Relabel", op, "Relabel"});
      const Node& norm = only(all, op);
      const auto type_of = [&](ValueId id) { return all.value(id).dtype; };
      CHECK(type_of(norm.inputs[0]) == parse_numerics(precision).storage);
      CHECK(type_of(norm.inputs[1]) == DType::f32);
      CHECK(type_of(norm.outputs[0]) == type_of(norm.inputs[0]));
    }
}

TEST_CASE("fuse_layer_norm/stays") {
  GraphBuilder b;
  const ValueId x = b.input("x", {4, 4, 4, 4}), z = b.input("z", {4, 4, 4, 4});
  const auto over = [&](ValueId d, ValueId squared, float power, const Ints& axes, ValueId epsilon, bool keeps = true) {
    const ValueId square = b.node("Pow", {squared, b.scalar(power)});
    const ValueId v = b.node("ReduceMean", {square}, {{"axes", axes}, {"keepdims", std::int64_t{keeps}}}, 13);
    return b.node("Div", {d, b.node("Sqrt", {b.node("Add", {v, epsilon})})});
  };
  const ValueId d = distance(b, x, {}), small = b.scalar(1e-5F);
  SUBCASE("axes in the middle") { b.output(normalised(b, x, {.axes = {2}})); }
  SUBCASE("axes apart") { b.output(normalised(b, x, {.axes = {1, 3}})); }
  SUBCASE("the variance over others") { b.output(over(d, d, 2, {2, 3}, small)); }
  SUBCASE("of another") { b.output(over(distance(b, z, {}), d, 2, {-1}, small)); }
  SUBCASE("distances from a mean over others") { b.output(over(distance(b, x, {.axes = {2}}), d, 2, {-1}, small)); }
  SUBCASE("squares around a mean over others") { b.output(over(d, distance(b, x, {.axes = {2}}), 2, {-1}, small)); }
  SUBCASE("cubes") { b.output(over(d, d, 3, {-1}, small)); }
  SUBCASE("around zero") { b.output(over(x, d, 2, {-1}, small)); }
  SUBCASE("a negative epsilon") { b.output(over(d, d, 2, {-1}, b.scalar(-1e-5F))); }
  SUBCASE("an epsilon for each") { b.output(over(d, d, 2, {-1}, b.weights({4, 1}, 1, 0.1))); }
  SUBCASE("root mean square: axes in the middle") { b.output(normalised(b, x, {.axes = {2}, .centered = false})); }
  SUBCASE("root mean square: axes apart") { b.output(normalised(b, x, {.axes = {1, 3}, .centered = false})); }
  SUBCASE("root mean square: planes") { b.output(normalised(b, x, {.axes = {2, 3}, .centered = false})); }
  SUBCASE("root mean square: of another") { b.output(over(z, x, 2, {-1}, small)); }
  SUBCASE("root mean square: a product of two") {
    const ValueId v = mean(b, b.node("Mul", {x, z}), {});
    b.output(b.node("Div", {x, b.node("Sqrt", {b.node("Add", {v, small})})}));
  }
  SUBCASE("root mean square: roots") { b.output(over(x, x, 0.5F, {-1}, small)); }
  SUBCASE("root mean square: a negative epsilon") { b.output(over(x, x, 2, {-1}, b.scalar(-1e-5F))); }
  SUBCASE("root mean square: an epsilon for each") { b.output(over(x, x, 2, {-1}, b.weights({4, 1}, 1, 0.1))); }
  SUBCASE("root mean square: without the axis") { b.output(over(x, x, 2, {-1}, small, false)); }
  SUBCASE("root mean square: the other way round") { b.output(b.node("Div", {root_of(b, x), x})); }
  SUBCASE("root mean square: not over one") {
    b.output(b.node("Mul", {x, b.node("Div", {b.scalar(2), root_of(b, x)})}));
  }
  SUBCASE("root mean square: times the root") { b.output(b.node("Mul", {x, root_of(b, x)})); }
  const Graph before = b.build(), fused = after(before, "fuse_layer_norm");
  CHECK(normalisations(fused) == 0);
  CHECK(fused.nodes.size() == before.nodes.size());
}
