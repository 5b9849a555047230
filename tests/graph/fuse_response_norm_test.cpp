// fuse_response_norm: a GlobalResponseNorm that is spelled out becomes one step on CUDA, with equal results; others
// stay.
#include <doctest/doctest.h>

#include <random>

#include "graph_builder.h"
#include "ops/core/choose.h"
#include "tests/random_seed.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

using Ints = std::vector<std::int64_t>;

PassContext on_cuda(const char* precision = "fp32") {
  return {.target = {reference_gpu(), parse_numerics(precision)}, .device = "cuda:0"};
}
Graph fused(const Graph& before) { return after(after(before, "common_factor"), "fuse_response_norm", on_cuda()); }

/// Of x [N,C,...] or, with `last`, [N,...,C].
struct Spelling {
  int rank = 4;
  bool last = false, opset_18 = false, first = true, bias = true;
  enum class Norm { l2, sum_of_squares, sum_of_products, sum_of_powers } norm = Norm::l2;
  enum class Scaled { response, product, x } scaled = Scaled::product;
  float epsilon = 1e-6F;

  Ints image() const {
    Ints axes;
    for (std::int64_t axis = last ? 1 : 2; axis < (last ? rank - 1 : rank); ++axis) axes.push_back(axis);
    return axes;
  }
  std::int64_t channel_axis() const { return last ? rank - 1 : 1; }
  /// A parameter's shape, as it broadcasts.
  Shape row(std::int64_t channels) const {
    Ints dims(static_cast<std::size_t>(rank), 1);
    dims[static_cast<std::size_t>(channel_axis())] = channels;
    return Shape(dims);
  }
};

class Spelled {
 public:
  Spelled(GraphBuilder& b, ValueId x, std::int64_t channels, const Spelling& s)
      : b_(b), s_(s), x_(x), channels_(channels) {}

  ValueId reduced(const char* op, ValueId x, const Ints& axes) const {
    if (!s_.opset_18) return b_.node(op, {x}, {{"axes", axes}}, op == std::string("ReduceSum") ? 11 : 13);
    return b_.node(op, {x, b_.constant(Tensor::of<std::int64_t>({std::int64_t(axes.size())}, std::span(axes)))}, {},
                   18);
  }
  ValueId norms() const {
    if (s_.norm == Spelling::Norm::l2) return reduced("ReduceL2", x_, s_.image());
    if (s_.norm == Spelling::Norm::sum_of_squares) return b_.node("Sqrt", {reduced("ReduceSumSquare", x_, s_.image())});
    const ValueId squares =
        s_.norm == Spelling::Norm::sum_of_products ? b_.node("Mul", {x_, x_}) : b_.node("Pow", {x_, b_.scalar(2)});
    return b_.node("Sqrt", {reduced("ReduceSum", squares, s_.image())});
  }
  ValueId mean(ValueId norms) const { return reduced("ReduceMean", norms, {s_.channel_axis()}); }
  ValueId response(ValueId norms, ValueId mean) const {
    return b_.node("Div", {norms, two("Add", mean, b_.scalar(s_.epsilon))});
  }
  ValueId parameter() const { return b_.weights(s_.row(channels_)); }
  ValueId applied(ValueId response) const {
    ValueId y = no_id;
    if (s_.scaled == Spelling::Scaled::response)
      y = two("Mul", x_, two("Mul", response, parameter()));
    else if (s_.scaled == Spelling::Scaled::product)
      y = two("Mul", two("Mul", x_, response), parameter());
    else
      y = two("Mul", two("Mul", x_, parameter()), response);
    if (s_.bias) y = two("Add", y, parameter());
    return two("Add", x_, y);
  }
  ValueId operator()() const {
    const ValueId g = norms();
    return applied(response(g, mean(g)));
  }

 private:
  ValueId two(const char* op, ValueId a, ValueId b) const {
    return s_.first ? b_.node(op, {a, b}) : b_.node(op, {b, a});
  }
  GraphBuilder& b_;
  Spelling s_;
  ValueId x_;
  std::int64_t channels_;
};

}  // namespace

TEST_CASE("fuse_response_norm/drawn_spellings") {
  std::mt19937 random(random_seed());
  const auto draw = [&](std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random);
  };
  for (int round = 0; round < 24; ++round) {
    const Spelling s{.rank = static_cast<int>(draw(3, 5)),
                     .last = round % 2 == 1,
                     .opset_18 = draw(0, 1) == 1,
                     .first = round / 2 % 2 == 0,
                     .bias = draw(0, 3) > 0,
                     .norm = static_cast<Spelling::Norm>(round % 4),
                     .scaled = static_cast<Spelling::Scaled>(round % 3),
                     .epsilon = round % 5 == 0 ? 0.5F : 1e-6F};
    const std::int64_t n = draw(1, 3), channels = draw(1, 9);
    Ints dims{n};
    if (!s.last) dims.push_back(channels);
    for (int i = 2; i < s.rank; ++i) dims.push_back(draw(5, 7));
    if (s.last) dims.push_back(channels);
    GraphBuilder b;
    const ValueId x = b.node("Sigmoid", {b.input("x", dims)});
    const ValueId y = Spelled(b, x, channels, s)();
    if (draw(0, 1) == 1) b.output(x);
    b.output(draw(0, 1) == 1 ? b.node("Relu", {y}) : y);
    if (draw(0, 1) == 1) b.output(b.node("Neg", {y}));
    const Graph before = b.build(n), found = fused(before);
    INFO(before.dump());
    const Node& node = only(found, "GlobalResponseNorm");
    CHECK(attribute<double>(*node.op, "epsilon") == static_cast<double>(s.epsilon));
    CHECK(integer_attribute(*node.op, "channels_last") == (s.last ? 1 : 0));
    CHECK(count(found, "Div") + count(found, "ReduceMean") + count(found, "Mul") + count(found, "Add") == 0);
    CHECK(worst_difference(before, found) < 1e-5);
    CHECK(count(after(after(before, "common_factor"), "fuse_response_norm"), "GlobalResponseNorm") == 0);  // the CPU
  }
}

TEST_CASE("fuse_response_norm/what_stays") {
  GraphBuilder b;
  Spelling s{.bias = false};
  const ValueId x = b.node("Sigmoid", {b.input("x", {6, 6, 6, 7})});
  const ValueId other = b.node("Tanh", {x});
  const auto spelled = [&] { return Spelled(b, x, 6, s); };
  const ValueId g = spelled().norms();
  const auto with = [&](ValueId norms, ValueId mean) { b.output(spelled().applied(spelled().response(norms, mean))); };
  const auto over = [&](const char* op, ValueId of, const Ints& axes) { return spelled().reduced(op, of, axes); };
  SUBCASE("no epsilon") {
    s.epsilon = 0;
    b.output(spelled()());
  }
  SUBCASE("a negative one") {
    s.epsilon = -1e-3F;
    b.output(spelled()());
  }
  SUBCASE("an epsilon for each channel") {
    const ValueId sum = b.node("Add", {spelled().mean(g), b.weights({1, 6, 1, 1}, 1, 0.1)});
    b.output(spelled().applied(b.node("Div", {g, sum})));
  }
  SUBCASE("norms of another value") {
    const ValueId others = Spelled(b, other, 6, s).norms();
    with(others, spelled().mean(others));
  }
  SUBCASE("the mean of others") {
    b.output(b.node("Relu", {g}));
    with(g, spelled().mean(Spelled(b, other, 6, s).norms()));
  }
  SUBCASE("sums of magnitudes") {
    const ValueId sums = over("ReduceL1", x, {2, 3});
    with(sums, spelled().mean(sums));
  }
  SUBCASE("roots of sums of cubes") {
    const ValueId sums = b.node("Sqrt", {over("ReduceSum", b.node("Pow", {x, b.scalar(3)}), {2, 3})});
    with(sums, spelled().mean(sums));
  }
  SUBCASE("roots of sums of products") {
    const ValueId sums = b.node("Sqrt", {over("ReduceSum", b.node("Mul", {x, other}), {2, 3})});
    with(sums, spelled().mean(sums));
  }
  SUBCASE("the largest norm") { with(g, over("ReduceMax", g, {1})); }
  SUBCASE("the mean over images, too") { with(g, over("ReduceMean", g, {0, 1})); }
  SUBCASE("norms of rows") {
    const ValueId rows = over("ReduceL2", x, {3});
    with(rows, over("ReduceMean", rows, {1}));
  }
  SUBCASE("norms over images, too") {
    const ValueId all = over("ReduceL2", x, {0, 2, 3});
    with(all, spelled().mean(all));
  }
  SUBCASE("norms over channels and columns") {
    const ValueId rows = over("ReduceL2", x, {1, 3});
    const ValueId response = spelled().response(rows, over("ReduceMean", rows, {3}));
    b.output(b.node("Add", {x, b.node("Mul", {x, b.node("Mul", {response, b.weights({7})})})}));
  }
  SUBCASE("norms over images and channels") {
    const ValueId pixels = over("ReduceL2", x, {0, 1});
    with(pixels, spelled().mean(pixels));
  }
  SUBCASE("norms over two of three axes of volumes") {
    s.rank = 5;
    const ValueId volumes = b.node("Sigmoid", {b.input("volumes", {2, 6, 3, 3, 4})});
    const Spelled of(b, volumes, 6, s);
    const ValueId norms = of.reduced("ReduceL2", volumes, {2, 4});
    b.output(of.applied(of.response(norms, of.mean(norms))));
  }
  SUBCASE("a scale for each row") {
    const ValueId response = spelled().response(g, spelled().mean(g));
    const ValueId factor = b.node("Mul", {response, b.weights({1, 1, 6, 1})});
    b.output(b.node("Add", {x, b.node("Mul", {x, factor})}));
  }
  SUBCASE("a computed scale") {
    const ValueId factor = b.node("Mul", {spelled().response(g, spelled().mean(g)), b.input("scale", {6, 1, 1})});
    b.output(b.node("Add", {x, b.node("Mul", {x, factor})}));
  }
  SUBCASE("others read the norms") {
    b.output(b.node("Relu", {g}));
    with(g, spelled().mean(g));
  }
  SUBCASE("the norms are an output") {
    b.output(g);
    with(g, spelled().mean(g));
  }
  SUBCASE("the mean is an output") {
    const ValueId mean = spelled().mean(g);
    b.output(mean);
    with(g, mean);
  }
  SUBCASE("the response is an output") {
    const ValueId response = spelled().response(g, spelled().mean(g));
    b.output(response);
    b.output(spelled().applied(response));
  }
  SUBCASE("others read the squares") {
    const ValueId squares = b.node("Mul", {x, x}), norms = b.node("Sqrt", {over("ReduceSum", squares, {2, 3})});
    b.output(squares);
    with(norms, spelled().mean(norms));
  }
  SUBCASE("others read their sums") {
    const ValueId sums = over("ReduceSumSquare", x, {2, 3}), norms = b.node("Sqrt", {sums});
    b.output(sums);
    with(norms, spelled().mean(norms));
  }
  SUBCASE("the mean keeps no axis, and broadcasts over channels") {
    with(g, b.node("ReduceMean", {g}, {{"axes", Ints{1}}, {"keepdims", std::int64_t{0}}}));
  }
  SUBCASE("sums of squares of another value") {
    const ValueId norms = b.node("Sqrt", {over("ReduceSumSquare", other, {2, 3})});
    with(norms, spelled().mean(norms));
  }
  SUBCASE("the sum with epsilon is an output") {
    const ValueId sum = b.node("Add", {spelled().mean(g), b.scalar(1e-6F)});
    b.output(sum);
    b.output(spelled().applied(b.node("Div", {g, sum})));
  }
  SUBCASE("the factor is an output") {
    const ValueId response = spelled().response(g, spelled().mean(g));
    const ValueId factor = b.node("Add", {b.node("Mul", {response, b.weights({6, 1, 1})}), b.scalar(1)});
    b.output(factor);
    b.output(b.node("Mul", {x, factor}));
  }
  SUBCASE("the factor and two") {
    const ValueId response = spelled().response(g, spelled().mean(g));
    b.output(b.node("Mul", {x, b.node("Add", {b.node("Mul", {response, b.weights({6, 1, 1})}), b.scalar(2)})}));
  }
  SUBCASE("the factor without one") {
    b.output(b.node("Mul", {x, b.node("Mul", {spelled().response(g, spelled().mean(g)), b.weights({6, 1, 1})})}));
  }
  const Graph before = b.build(6);
  CHECK(count(fused(before), "GlobalResponseNorm") == 0);
}

TEST_CASE("fuse_response_norm/a_bias_that_stays") {
  GraphBuilder b;
  const ValueId x = b.node("Sigmoid", {b.input("x", {2, 6, 5, 7})}), y = Spelled(b, x, 6, {.bias = false})();
  SUBCASE("for each column") { b.output(b.node("Add", {y, b.weights({1, 1, 1, 7})})); }
  SUBCASE("computed") { b.output(b.node("Add", {b.input("bias", {6, 1, 1}), y})); }
  SUBCASE("others read the product") {
    b.output(y);
    b.output(b.node("Add", {y, b.weights({6, 1, 1})}));
  }
  const Graph before = b.build(2), found = fused(before);
  CHECK(count(found, "GlobalResponseNorm") == 1);
  CHECK(count(found, "Add") == 1);
  CHECK(worst_difference(before, found) < 1e-5);
}

// The MLP of a block of ConvNeXt V2, by convolutions and by products of [N,H,W,C].
TEST_CASE("fuse_response_norm/between_convolutions") {
  for (const bool last : {false, true})
    for (const char* const precision : {"fp32", "tf32", "fp16", "bf16"}) {
      CAPTURE(last);
      CAPTURE(precision);
      GraphBuilder b;
      const ValueId input = b.conv(b.input("x", {-1, 3, 14, 14}), 3, 40, 1);
      ValueId y = no_id;
      if (last) {
        const ValueId rows = b.node("Transpose", {input}, {{"perm", Ints{0, 2, 3, 1}}});
        const ValueId x =
            b.node("Relu", {b.node("Add", {b.node("MatMul", {rows, b.weights({40, 160})}), b.weights({160})})});
        y = b.node("MatMul", {Spelled(b, x, 160, {.last = true})(), b.weights({160, 40})});
        y = b.node("Transpose", {b.node("Add", {y, b.weights({40})})}, {{"perm", Ints{0, 3, 1, 2}}});
      } else {
        y = b.conv(Spelled(b, b.node("Relu", {b.conv(input, 40, 160, 1)}), 160, {})(), 160, 40, 1);
      }
      b.output(b.node("Add", {input, y}));
      const Graph before = b.build(2), all = after_all(before, on_cuda(precision));
      INFO(all.dump());
      const Node& node = only(all, "GlobalResponseNorm");
      CHECK(node.choice != nullptr);
      CHECK(integer_attribute(*node.op, "channels_last") == 0);
      const bool halves = precision == std::string("fp16") || precision == std::string("bf16");
      CHECK((all.value(node.inputs[0]).dtype == DType::f32) == !halves);
      CHECK(all.value(node.inputs[1]).dtype == DType::f32);
      CHECK(all.value(node.inputs[0]).format == all.value(node.outputs[0]).format);
      CHECK(count(all, "Transpose") + count(all, "Relabel") + count(all, "ReduceL2") + count(all, "Mul") == 0);
      CHECK(count(after_all(before, on_cuda(precision), {"fuse_response_norm"}), "ReduceL2") == 1);
    }
}
