// fold_input_scale: constant factors of the input of convolutions go into their filters, with equal results.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "graph_builder.h"
#include "tests/random_seed.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

/// As PyTorch exports it.
ValueId gelu(GraphBuilder& b, ValueId x) {
  const ValueId erf = b.node("Erf", {b.node("Div", {x, b.scalar(1.41421356F)})});
  return b.node("Mul", {b.node("Mul", {x, b.node("Add", {erf, b.scalar(1)})}), b.scalar(0.5F)});
}

}  // namespace

TEST_CASE("fold_input_scale/nfnets_scale_each_activation") {
  for (const std::int64_t groups : {1, 2, 8}) {
    GraphBuilder b;
    ValueId y = b.node("Mul", {gelu(b, b.conv(b.input("x", {2, 4, 9, 7}), 4, 8, 3, 1)), b.scalar(1.7015F)});
    y = b.node("Conv", {y, b.weights({16, 8 / groups, 3, 3}), b.weights({16})},
               {{"group", groups}, {"pads", std::vector<std::int64_t>{1, 1, 1, 1}}});
    y = b.node("Mul", {b.weights({16, 1, 1}), b.node("Relu", {y})});
    b.output(b.conv(y, 16, 5, 1));
    const Graph before = b.build(2), all = after_all(before);
    INFO(all.dump());
    CHECK(count(all, "Mul") + count(all, "Gelu") + count(all, "Relu") + count(all, "ElementwiseChain") == 0);
    CHECK(count(after_all(before, {"fold_input_scale"}), "Mul") == 2);
    CHECK(worst_difference(before, all) < 1e-5);
  }
}

TEST_CASE("fold_input_scale/each_operator_where_nothing_is_padded") {
  for (const char* op : {"Mul", "Div", "Add", "Sub"})
    for (const bool constant_first : {false, true})
      for (const bool padded : {false, true}) {
        CAPTURE(op);
        CAPTURE(constant_first);
        CAPTURE(padded);
        GraphBuilder b;
        const ValueId x = b.node("Sigmoid", {b.input("x", {2, 4, 5, 7})}), c = b.weights({4, 1, 1}, 3, 0.5);
        b.output(b.conv(constant_first ? b.node(op, {c, x}) : b.node(op, {x, c}), 4, 6, 3, padded ? 1 : 0));
        const Graph before = b.build(2), found = after(before, "fold_input_scale");
        const bool scales = std::string_view(op) == "Mul" || std::string_view(op) == "Div";
        const bool folds = (scales || !padded) && !(std::string_view(op) == "Div" && constant_first);
        CHECK(found.nodes.size() == (folds ? 2 : 3));
        CHECK(worst_difference(before, found) < 1e-5);
      }
}

// The first block of a stage of NFNets: the shortcut and the block read one scaled value.
TEST_CASE("fold_input_scale/several_readers") {
  GraphBuilder b;
  const ValueId x = b.node("Sigmoid", {b.input("x", {2, 4, 8, 6})});
  const ValueId y = b.node("Div", {x, b.weights({4, 1, 1}, 3, 0.5)});
  const AttributeList two = {{"kernel_shape", std::vector<std::int64_t>{2, 2}},
                             {"strides", std::vector<std::int64_t>{2, 2}}};
  b.output(b.conv(y, 4, 6, 3, 1, 2));
  b.output(b.conv(b.node("AveragePool", {y}, two), 4, 6, 1));
  b.output(b.node("Conv", {y, b.weights({8, 2, 1, 1})}, {{"group", std::int64_t{2}}}));
  const Graph before = b.build(), found = after(before, "fold_input_scale");
  CHECK(count(found, "Mul") + count(found, "Div") == 0);
  CHECK(only(found, "AveragePool").inputs[0] == only(found, "Sigmoid").outputs[0]);
  CHECK(worst_difference(before, found) < 1e-5);
}

// Trees of convolutions, AveragePools, factors and others: what is folded has equal results.
TEST_CASE("fold_input_scale/drawn_graphs") {
  std::mt19937 generator(random_seed());
  const auto below = [&](unsigned count) { return static_cast<unsigned>(generator()) % count; };
  int folded = 0;
  for (int round = 0; round < 60; ++round) {
    GraphBuilder b;
    std::vector<ValueId> values{b.input("x", {2, 4, 8, 8})};
    std::vector<bool> read{false};
    const unsigned length = 4 + below(8);
    for (unsigned i = 0; i < length; ++i) {
      const std::size_t from = below(2) == 0 ? values.size() - 1 : below(static_cast<unsigned>(values.size()));
      const ValueId x = values[from];
      read[from] = true;
      const ValueId factor =
          below(2) == 0 ? b.scalar(0.25F + 0.5F * static_cast<float>(below(4))) : b.weights({4, 1, 1}, 2, 0.4);
      switch (below(8)) {
        case 0:
          values.push_back(b.conv(x, 4, 4, 3, 1));
          break;
        case 1:
          values.push_back(b.conv(x, 4, 4, 1));
          break;
        case 2:
          values.push_back(b.node("AveragePool", {x},
                                  {{"kernel_shape", std::vector<std::int64_t>{3, 3}},
                                   {"pads", std::vector<std::int64_t>{1, 1, 1, 1}},
                                   {"count_include_pad", static_cast<std::int64_t>(below(2))}}));
          break;
        case 3:
          values.push_back(b.node(below(2) == 0 ? "Add" : "Sub", {x, factor}));
          break;
        case 4:
          values.push_back(b.node("Tanh", {x}));
          break;
        case 5:
          values.push_back(b.node("Div", {x, factor}));
          break;
        default:
          values.push_back(b.node("Mul", {x, factor}));
      }
      read.push_back(false);
    }
    for (std::size_t i = 0; i < values.size(); ++i)
      if (!read[i] || below(12) == 0) b.output(values[i]);
    const Graph before = b.build(), found = after(before, "fold_input_scale");
    CAPTURE(round);
    CHECK(worst_difference(before, found) < 2e-5);
    folded += static_cast<int>(before.nodes.size() - found.nodes.size());
  }
  CHECK(folded > 20);
}

TEST_CASE("fold_input_scale/numbers_one_after_the_other") {
  for (const auto& [op, first, second, merges] : {std::tuple("Mul", 2.0F, 0.2F, true),
                                                  {"Add", 2.0F, 0.2F, true},
                                                  {"Add", -2.0F, -0.5F, true},
                                                  {"Add", 0x1p23F, -0x1p23F, false},
                                                  {"Mul", 1e-30F, 1e-30F, false},
                                                  {"Mul", 1e30F, 1e30F, false}})
    for (const bool constant_first : {false, true}) {
      GraphBuilder b;
      const ValueId x = b.input("x", {2, 3, 5}), a = b.scalar(first);
      const ValueId inner = constant_first ? b.node(op, {a, x}) : b.node(op, {x, a});
      b.output(b.node("Tanh", {b.node(op, {inner, b.scalar(second)})}));
      const Graph before = b.build(), found = after(before, "fold_input_scale");
      const std::string numbers = fmt::format("{} {} and {}", op, first, second);
      CAPTURE(numbers);
      CHECK(found.nodes.size() == (merges ? 2 : 3));
      CHECK(worst_difference(before, found) < 1e-6);
    }
}

TEST_CASE("fold_input_scale/stays") {
  GraphBuilder b;
  const ValueId x = b.input("x", {1, 4, 7, 7});
  SUBCASE("another reader") {
    const ValueId y = b.node("Mul", {x, b.scalar(2)});
    b.output(b.node("Add", {b.conv(y, 4, 4, 1), y}));
  }
  SUBCASE("a reader of its maxima") {
    const ValueId y = b.node("Mul", {x, b.scalar(-2)});
    b.output(b.conv(y, 4, 4, 1));
    b.output(b.conv(b.node("MaxPool", {y}, {{"kernel_shape", std::vector<std::int64_t>{2, 2}}}), 4, 4, 1));
  }
  SUBCASE("means that are an output") {
    const ValueId y = b.node("Mul", {x, b.scalar(2)});
    const ValueId mean = b.node("AveragePool", {y}, {{"kernel_shape", std::vector<std::int64_t>{2, 2}}});
    b.output(mean);
    b.output(b.conv(mean, 4, 4, 1));
  }
  SUBCASE("a filter of several convolutions, which would be copied for each") {
    const ValueId y = b.node("Mul", {x, b.scalar(2)}), filter = b.weights({4, 4, 1, 1});
    b.output(b.node("Conv", {y, filter}));
    b.output(b.node("Conv", {y, filter}));
  }
  SUBCASE("an offset that several read") {
    const ValueId y = b.node("Add", {x, b.scalar(2)});
    b.output(b.conv(y, 4, 4, 1));
    b.output(b.conv(y, 4, 6, 1));
  }
  SUBCASE("an output") {
    const ValueId y = b.node("Mul", {x, b.scalar(2)});
    b.output(y);
    b.output(b.conv(y, 4, 4, 1));
  }
  SUBCASE("a factor by pixel") { b.output(b.conv(b.node("Mul", {x, b.weights({7})}), 4, 4, 1)); }
  SUBCASE("a computed factor") { b.output(b.conv(b.node("Mul", {x, b.input("f", {4, 1, 1})}), 4, 4, 1)); }
  SUBCASE("a factor too large for filters of 16 bits") {
    b.output(b.conv(b.node("Mul", {x, b.scalar(1e4F)}), 4, 4, 1));
  }
  SUBCASE("one too small for them") { b.output(b.conv(b.node("Mul", {b.scalar(1e-4F), x}), 4, 4, 1)); }
  SUBCASE("a factor that overflows") { b.output(b.conv(b.node("Div", {x, b.scalar(0)}), 4, 4, 1)); }
  const Graph before = b.build();
  CHECK(after(before, "fold_input_scale").nodes.size() == before.nodes.size());
}
