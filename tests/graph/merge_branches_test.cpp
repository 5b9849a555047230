#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "graph_builder.h"

using namespace lenslet;
using namespace lenslet::test;
using Ints = std::vector<std::int64_t>;

namespace {

/// A Conv of any number of spatial axes, which are alike.
struct Filter {
  std::int64_t taps = 3, pad = 1, dilation = 1, stride = 1, groups = 1;
};

ValueId conv(GraphBuilder& b, ValueId x, std::int64_t c, std::int64_t k, const Filter& f, std::size_t axes = 2,
             bool bias = true) {
  Shape w{k, c / f.groups, f.taps};
  if (axes == 2) w = {k, c / f.groups, f.taps, f.taps};
  if (axes == 3) w = {k, c / f.groups, f.taps, f.taps, f.taps};
  const double deviation = 1 / std::sqrt(static_cast<double>(w.elems() / k));
  std::vector<ValueId> inputs{x, b.weights(w, 0, deviation)};
  if (bias) inputs.push_back(b.weights({k}));
  return b.node("Conv", inputs,
                {{"pads", Ints(2 * axes, f.pad)},
                 {"dilations", Ints(axes, f.dilation)},
                 {"strides", Ints(axes, f.stride)},
                 {"group", f.groups}});
}

Graph merged(const Graph& before) {
  Graph graph = before;
  for (const char* const pass : {"fold_batch_norm", "fold_scale", "merge_branches"}) graph = after(graph, pass);
  INFO(before.dump() << graph.dump());
  CHECK(worst_difference(before, graph) < 1e-5);
  return graph;
}

/// Whether the sum of these convolutions of x [2,c,...] becomes one.
bool merges(const std::vector<Filter>& filters, std::int64_t c = 4, std::int64_t k = 4, std::size_t axes = 2,
            bool identity = false) {
  GraphBuilder b;
  const Ints dims[] = {{2, c, 19}, {2, c, 9, 8}, {2, c, 6, 5, 7}};
  const ValueId x = b.input("x", dims[axes - 1]);
  std::vector<ValueId> terms;
  for (const Filter& f : filters) terms.push_back(conv(b, x, c, k, f, axes, terms.size() % 2 == 0));
  if (identity) terms.push_back(b.batch_norm(x, c));
  b.output(b.node("Relu", {b.node("Sum", terms)}));
  const Graph after_pass = merged(b.build(2));
  CHECK((count(after_pass, "Conv") == 1) == (after_pass.nodes.size() == 2));
  return after_pass.nodes.size() == 2;
}

}  // namespace

TEST_CASE("merge_branches/repvgg") {
  for (const bool nested : {true, false}) {
    GraphBuilder b;
    const ValueId x = b.input("x", {2, 8, 7, 5});
    const ValueId dense = b.batch_norm(b.conv(x, 8, 8, 3, 1), 8), point = b.batch_norm(b.conv(x, 8, 8, 1), 8),
                  same = b.batch_norm(x, 8);
    b.output(b.node("Relu", {nested ? b.node("Add", {b.node("Add", {dense, point}), same})
                                    : b.node("Add", {same, b.node("Add", {point, dense})})}));
    const Graph before = b.build(2), graph = merged(before), all = after_all(before);
    CHECK(graph.nodes.size() == 2);
    const Node& sum = only(graph, "Conv");
    CHECK(graph.value(sum.inputs[1]).shape == Shape{8, 8, 3, 3});
    CHECK(sum.op->epilogue()->scale.empty());
    CHECK(sum.name == before.nodes[0].name);
    const std::string first = nested ? before.nodes[0].name : before.nodes[4].name;
    CHECK(sum.note.starts_with("the sum of 3 branches: " + first));
    CHECK(all.nodes.size() - static_cast<std::size_t>(count(all, "LayoutConvert")) == 1);
    CHECK(only(all, "Conv").note == sum.note);
    CHECK(worst_difference(before, all) < 1e-5);
  }
}

TEST_CASE("merge_branches/what_fits_one_filter") {
  const Filter point{.taps = 1, .pad = 0};
  CHECK(merges({{}, point}));
  CHECK(merges({point, {}, {}, {}}, 4, 6));
  CHECK(merges({{.taps = 7, .pad = 3}, {}, point}));
  CHECK(merges({{.stride = 2}, {.taps = 1, .pad = 0, .stride = 2}}, 4, 6));
  CHECK(merges({{.taps = 7, .pad = 3, .stride = 2, .groups = 4}, {.taps = 3, .stride = 2, .groups = 4}}));
  CHECK(merges({{.groups = 4}, {.groups = 4}, {.taps = 1, .pad = 0, .groups = 4}}, 4, 8));
  CHECK(merges({{.groups = 4}, {.groups = 4}}, 4, 4, 2, true));
  CHECK(merges({{.groups = 4}}, 4, 4, 2, true));
  CHECK(merges({{.groups = 2}}, 4, 4, 2, true));
  CHECK(merges({point}, 4, 4, 2, true));
  // Groups are blocks of a filter with fewer groups.
  CHECK(merges({{.groups = 2}, {}, {.groups = 4}}, 4, 8));
  CHECK(merges({{.groups = 2}, {.groups = 6}}, 12, 24, 2));
  // Dilated taps that the larger filter has.
  CHECK(merges({{.taps = 5, .pad = 2}, {.pad = 2, .dilation = 2}}));
  CHECK(merges({{.pad = 2, .dilation = 2}, point}));
  CHECK(merges({{.taps = 5, .pad = 6, .dilation = 3}, {.pad = 3, .dilation = 3}}, 4, 4, 1, true));
  CHECK(merges({{}, point}, 4, 4, 1, true));
  CHECK(merges({{}, point}, 4, 4, 3, true));
  CHECK(merges({{.stride = 2}, {.taps = 1, .pad = 0, .stride = 2}}, 3, 5, 3));
  // Padding that differs by more on one side.
  GraphBuilder b;
  const ValueId x = b.input("x", {1, 3, 6, 6});
  const AttributeList same{{"auto_pad", std::string("SAME_UPPER")}};
  b.output(b.node("Add", {b.node("Conv", {x, b.weights({3, 3, 4, 4}, 0, 0.1)}, same),
                          b.node("Conv", {x, b.weights({3, 3, 1, 3}, 0, 0.1)}, same)}));
  b.output(b.node("Add", {b.node("Conv", {x, b.weights({3, 3, 5, 5}, 0, 0.1)}, {{"pads", Ints{1, 3, 3, 1}}}),
                          b.node("Conv", {x, b.weights({3, 3, 3, 3}, 0, 0.1)}, {{"pads", Ints{1, 1, 1, 1}}})}));
  CHECK(merged(b.build()).nodes.size() == 2);
}

TEST_CASE("merge_branches/what_does_not") {
  CHECK_FALSE(merges({{.groups = 4}, {.taps = 1, .pad = 0}}));  // dense beside depthwise
  CHECK_FALSE(merges({{.pad = 2, .dilation = 2}, {}}));         // taps between the other's
  CHECK_FALSE(merges({{.groups = 2}, {.groups = 3}}, 6, 6));    // groups that overlap
  GraphBuilder b;
  const ValueId x = b.input("x", {1, 4, 8, 8}), z = b.input("z", {1, 4, 8, 8});
  SUBCASE("of two values") { b.output(b.node("Add", {b.conv(x, 4, 4, 3, 1), b.conv(z, 4, 4, 3, 1)})); }
  SUBCASE("strides") { b.output(b.node("Add", {b.conv(x, 4, 4, 2, 0, 2), b.conv(x, 4, 4, 5, 0, 1)})); }
  SUBCASE("another reader") {
    const ValueId y = b.conv(x, 4, 4, 3, 1);
    b.output(b.node("Add", {y, b.conv(x, 4, 4, 1)}));
    b.output(b.node("Sigmoid", {y}));
  }
  SUBCASE("a network's output") {
    const ValueId y = b.conv(x, 4, 4, 3, 1);
    b.output(b.node("Add", {y, b.conv(x, 4, 4, 1)}));
    b.output(y);
  }
  SUBCASE("a block of ResNet") { b.output(b.node("Add", {b.conv(x, 4, 4, 3, 1), x})); }
  SUBCASE("a single row and a single column") {
    b.output(b.node("Add", {b.node("Conv", {x, b.weights({4, 4, 1, 3})}, {{"pads", Ints{0, 1, 0, 1}}}),
                            b.node("Conv", {x, b.weights({4, 4, 3, 1})}, {{"pads", Ints{1, 0, 1, 0}}})}));
  }
  SUBCASE("padding that moves the taps") {
    b.output(b.node(
        "Add", {b.conv(x, 4, 4, 3, 1), b.node("Conv", {x, b.weights({4, 4, 3, 3})}, {{"pads", Ints{0, 2, 2, 0}}})}));
  }
  SUBCASE("an activation between") {
    b.output(b.node("Add", {b.node("Relu", {b.conv(x, 4, 4, 3, 1)}), b.conv(x, 4, 4, 1)}));
  }
  SUBCASE("filters computed by the network") {
    b.output(b.node("Add", {b.node("Conv", {x, b.input("w", {4, 4, 1, 1})}), b.conv(x, 4, 4, 1)}));
  }
  SUBCASE("broadcast") {
    const ValueId one = b.input("one", {1, 4, 1, 1});
    b.output(b.node("Add", {b.conv(one, 4, 4, 3, 1), b.conv(x, 4, 4, 1)}));
  }
  SUBCASE("beyond float32") {
    const ValueId w = b.constant(Tensor::of<float>(Shape{1, 4, 1, 1}, {3e38F, 1, 1, 1}));
    b.output(b.node("Add", {b.node("Conv", {x, w}), b.node("Conv", {x, w})}));
    const Graph before = b.build(), graph = after(before, "merge_branches");
    CHECK(graph.nodes.size() == before.nodes.size());
    return;
  }
  const Graph before = b.build(), graph = after(before, "merge_branches");
  CHECK(graph.nodes.size() == before.nodes.size());
  CHECK(worst_difference(before, graph) == 0);
}

TEST_CASE("merge_branches/the_rest_of_a_sum_stays") {
  GraphBuilder b;
  const ValueId x = b.input("x", {1, 4, 8, 8}), z = b.input("z", {1, 4, 8, 8});
  const ValueId left = b.node("Add", {b.conv(x, 4, 4, 3, 1), z}), right = b.node("Sub", {b.conv(x, 4, 4, 1), z});
  b.output(b.node("Relu", {b.node("Sub", {left, right})}));
  const Graph before = b.build(), graph = merged(before), all = after_all(before);
  CHECK(count(graph, "Conv") == 1);
  CHECK(count(graph, "Add") == 2);
  CHECK(count(all, "Conv") == 1);
  CHECK(worst_difference(before, all) < 1e-5);
}

TEST_CASE("merge_branches/two_values_in_one_sum") {
  GraphBuilder b;
  const ValueId x = b.input("x", {1, 4, 8, 8}), z = b.input("z", {1, 4, 8, 8});
  b.output(b.node("Sum", {b.conv(x, 4, 4, 3, 1), b.conv(z, 4, 4, 1), b.conv(x, 4, 4, 1), b.conv(z, 4, 4, 5, 2)}));
  const Graph before = b.build(), graph = merged(before), all = after_all(before);
  CHECK(count(graph, "Conv") == 2);
  CHECK(count(graph, "Add") == 1);
  CHECK(count(all, "Add") == 0);
  CHECK(worst_difference(before, all) < 1e-5);
}

// FastViT's mixer: x + scale * (mixed - norm(x)), mixed the sum of two convolutions and a BatchNormalization.
TEST_CASE("merge_branches/a_sum_times_a_factor_is_a_branch") {
  GraphBuilder b;
  const ValueId x = b.input("x", {2, 6, 9, 7});
  const ValueId mixed = b.node("Add", {b.node("Add", {b.batch_norm(conv(b, x, 6, 6, {.groups = 6}, 2, false), 6),
                                                      conv(b, x, 6, 6, {.taps = 1, .pad = 0, .groups = 6}, 2, false)}),
                                       b.batch_norm(x, 6)});
  const ValueId scaled = b.node("Mul", {b.weights({6, 1, 1}), b.node("Sub", {mixed, b.batch_norm(x, 6)})});
  b.output(b.node("Add", {x, b.batch_norm(scaled, 6)}));
  const Graph before = b.build(2), graph = merged(before);
  CHECK(graph.nodes.size() == 1);
  CHECK(graph.value(only(graph, "Conv").inputs[1]).shape == Shape{6, 1, 3, 3});
}

TEST_CASE("merge_branches/a_dense_convolution_beside_two_depthwise_ones_and_the_value") {
  GraphBuilder b;
  const ValueId x = b.input("x", {1, 6, 8, 8});
  const Filter depthwise{.groups = 6};
  b.output(b.node("Sum", {conv(b, x, 6, 6, depthwise), x, b.conv(x, 6, 6, 1), conv(b, x, 6, 6, depthwise)}));
  CHECK(count(merged(b.build()), "Conv") == 2);
}

// An output is finite or not as before: no tap reads what no branch read.
TEST_CASE("merge_branches/values_that_are_no_numbers") {
  GraphBuilder b;
  const ValueId x = b.input("x", {1, 4, 12, 12});
  b.output(b.node("Sum", {b.batch_norm(x, 4), conv(b, x, 4, 4, {.pad = 2, .dilation = 2}), b.conv(x, 4, 4, 1)}));
  const Graph before = b.build(), graph = merged(before);
  CHECK(graph.nodes.size() == 1);
  std::vector<Tensor> inputs = random_inputs(before, 3);
  inputs[0].values<float>()[30] = std::numeric_limits<float>::quiet_NaN();
  inputs[0].values<float>()[144 + 100] = std::numeric_limits<float>::infinity();
  const Tensor expected = interpret(before, inputs)[0], got = interpret(graph, inputs)[0];
  int spoiled = 0;
  for (std::size_t i = 0; i < expected.values<float>().size(); ++i) {
    const bool finite = std::isfinite(expected.values<float>()[i]);
    CHECK(finite == std::isfinite(got.values<float>()[i]));
    spoiled += finite ? 0 : 1;
  }
  CHECK(spoiled > 4);
}

TEST_CASE("merge_branches/random_sums") {
  std::mt19937 random(11);
  const auto draw = [&](int least, int most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random);
  };
  int fewer = 0;
  for (int i = 0; i < 150; ++i) {
    CAPTURE(i);
    GraphBuilder b;
    const std::int64_t c = 4 * draw(1, 2), stride = draw(1, 2), k = stride == 1 ? c : c * draw(1, 2);
    const auto axes = static_cast<std::size_t>(draw(1, 2));
    const Ints dims = axes == 1 ? Ints{2, c, 13} : Ints{2, c, 9, 10};
    const ValueId values[] = {b.input("x", dims), b.input("z", dims)};
    std::vector<ValueId> terms;
    for (std::int64_t t = draw(2, 6); t > 0; --t) {
      const ValueId x = values[draw(0, 5) == 0 ? 1 : 0];
      const std::int64_t half = draw(0, 2), dilation = draw(1, 2);
      const Filter filter{.taps = 2 * half + 1,
                          .pad = half * dilation,
                          .dilation = dilation,
                          .stride = stride,
                          .groups = Ints{1, 1, 2, c}[static_cast<std::size_t>(draw(0, 3))]};
      ValueId y = stride == 1 && draw(0, 3) == 0 ? x : conv(b, x, c, k, filter, axes, draw(0, 1) == 0);
      if (draw(0, 2) == 0) y = b.batch_norm(y, k);
      if (draw(0, 5) == 0) y = b.node("Mul", {y, b.scalar(0.75F)});
      if (draw(0, 15) == 0) b.output(y);
      terms.push_back(y);
    }
    while (terms.size() > 1) {
      const auto count = static_cast<std::ptrdiff_t>(draw(2, static_cast<int>(std::min<std::size_t>(3, terms.size()))));
      const std::vector<ValueId> inputs(terms.begin(), terms.begin() + count);
      terms.erase(terms.begin(), terms.begin() + count);
      ValueId y = b.node(count == 3 ? "Sum" : draw(0, 3) == 0 ? "Sub" : "Add", inputs);
      if (draw(0, 4) == 0) y = b.batch_norm(y, k);
      if (draw(0, 15) == 0) y = b.node("Relu", {y});
      if (draw(0, 15) == 0) b.output(y);
      terms.push_back(y);
    }
    b.output(terms[0]);
    const Graph before = b.build(2), graph = merged(before);
    fewer += count(graph, "Conv") < count(before, "Conv") ? 1 : 0;
    if (i % 4 == 0) CHECK(worst_difference(before, after_all(before)) < 3e-5);
  }
  CHECK(fewer > 60);
}
