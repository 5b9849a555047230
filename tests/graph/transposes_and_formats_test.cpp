// cancel_transposes, choose_kernels and assign_formats: the remaining steps that move bytes.
#include <doctest/doctest.h>

#include <algorithm>

#include "graph_builder.h"
#include "runtime/graph/infer_shapes.h"
#include "tests/expect_error.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

using Ints = std::vector<std::int64_t>;

ValueId channels_first(GraphBuilder& b, ValueId x) { return b.node("Transpose", {x}, {{"perm", Ints{0, 3, 1, 2}}}); }
ValueId channels_last(GraphBuilder& b, ValueId x) { return b.node("Transpose", {x}, {{"perm", Ints{0, 2, 3, 1}}}); }

/// A convolution as in an NHWC export.
ValueId nhwc_conv(GraphBuilder& b, ValueId x, std::int64_t c, std::int64_t k, std::int64_t kernel, std::int64_t pad) {
  return channels_last(b, b.conv(channels_first(b, x), c, k, kernel, pad));
}

/// Number of steps that reorder elements.
int moves(const Graph& graph) {
  const auto pads = std::count_if(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
    return node.type() == "LayoutConvert" && graph.value(node.outputs[0]).format.halo != Format::Halo();
  });
  return count(graph, "LayoutConvert") - static_cast<int>(pads) + count(graph, "Transpose");
}

/// The message of choose_kernels if no plan can be made; else empty.
std::string refusal(Graph& graph, const PassContext& context) {
  return refusal_of(ErrorKind::unsupported, [&] { choose_kernels(graph, context); });
}

}  // namespace

TEST_CASE("cancel_transposes/residual_block_of_an_nhwc_export") {
  GraphBuilder b;
  const ValueId x = b.input("x", {2, 7, 5, 3});
  const ValueId stem = b.node("Relu", {b.node("Add", {nhwc_conv(b, x, 3, 8, 3, 1), b.weights({8})})});
  const ValueId padded = b.node("Pad", {stem, b.int64s({0, 1, 1, 0, 0, 1, 1, 0})});
  const ValueId y = nhwc_conv(b, padded, 8, 8, 3, 0);
  const ValueId sum = b.node("Relu", {b.node("Add", {y, stem})});
  const ValueId both = b.node("Concat", {sum, stem}, {{"axis", std::int64_t{3}}});
  b.output(b.node("ReduceMean", {both}, {{"axes", Ints{1, 2}}, {"keepdims", std::int64_t{0}}}));
  const Graph before = b.build(), sunk = after(before, "cancel_transposes");
  INFO(sunk.dump());
  CHECK(count(sunk, "Transpose") == 1);  // of the input
  CHECK(worst_difference(before, sunk) < 1e-5);
  const Graph all = after_all(before);
  INFO(all.dump());
  CHECK(count(all, "Add") == 0);
  CHECK(count(all, "Relu") == 0);
  CHECK(worst_difference(before, all) < 1e-5);
}

TEST_CASE("assign_formats/groups_between_convolutions_stay_in_nhwc") {
  const auto network = [](std::int64_t groups) {
    GraphBuilder b;
    ValueId x = b.conv(b.input("x", {1, 16, 32, 32}), 16, 32, 3, 1);
    if (groups == 32)
      x = b.node("InstanceNormalization", {x, b.weights({32}), b.weights({32})});
    else if (groups > 0)
      x = b.node("GroupNormalization", {x, b.weights({32}), b.weights({32})}, {{"num_groups", groups}}, 21);
    b.output(b.conv(x, 32, 16, 3, 1));
    return b.build();
  };
  const int without = moves(after_all(network(0)));
  for (const std::int64_t groups : {1, 2, 16, 32}) {
    const Graph before = network(groups), all = after_all(before);
    INFO(all.dump());
    CHECK(moves(all) == without);
    CHECK(worst_difference(before, all) < 1e-5);
  }
}

TEST_CASE("cancel_transposes/pair_and_double") {
  GraphBuilder b;
  const ValueId x = b.input("x", {2, 3, 4, 5});
  b.output(b.node("Relu", {channels_first(b, channels_last(b, x))}));
  b.output(b.node("Sigmoid", {channels_last(b, channels_last(b, x))}));
  b.output(channels_first(b, channels_last(b, x)));
  const Graph before = b.build(), sunk = after(before, "cancel_transposes");
  CHECK(count(sunk, "Transpose") <= 2);
  CHECK(worst_difference(before, sunk) == 0);
}

TEST_CASE("cancel_transposes/other_readers_still_see_nhwc") {
  GraphBuilder b;
  const ValueId x = b.input("x", {2, 3, 4, 5}), last = channels_last(b, x);
  b.output(last);
  b.output(b.node("Mul", {last, b.weights({5, 3})}));
  b.output(b.node("Softmax", {last}, {{"axis", std::int64_t{-1}}}));
  b.output(b.node("Mul", {last, b.input("s", {2, 4, 5, 3})}));  // the other operand is not a Transpose
  const Graph before = b.build();
  CHECK(worst_difference(before, after(before, "cancel_transposes")) < 1e-6);
}

// A "Dense" on images is a 1x1 convolution and fuses like any other.
TEST_CASE("cancel_transposes/dense_between_convolutions") {
  GraphBuilder b;
  const ValueId x = b.conv(b.input("x", {2, 3, 9, 7}), 3, 8, 3, 1);
  const ValueId dense = b.node("MatMul", {channels_last(b, x), b.weights({8, 6})});
  const ValueId active = b.node("Relu", {b.node("Add", {dense, b.weights({6})})});
  b.output(b.conv(channels_first(b, active), 6, 4, 3, 1));
  const Graph before = b.build(), sunk = after(before, "cancel_transposes");
  INFO(sunk.dump());
  CHECK(count(sunk, "Transpose") == 0);
  CHECK(count(sunk, "Conv") == 3);
  CHECK(worst_difference(before, sunk) < 1e-5);
  const Graph all = after_all(before);
  INFO(all.dump());
  CHECK(moves(all) <= 2);
  CHECK(count(all, "Add") + count(all, "Relu") == 0);
  CHECK(worst_difference(before, all) < 1e-5);
}

// Squeeze and excitation as in Keras: the means lose their axes, and a Reshape restores them.
TEST_CASE("cancel_transposes/squeeze_and_excitation_in_nhwc") {
  GraphBuilder b;
  const ValueId x = channels_last(b, b.conv(b.input("x", {2, 3, 9, 7}), 3, 8, 3, 1));
  const ValueId means = b.node("ReduceMean", {x}, {{"axes", Ints{1, 2}}, {"keepdims", std::int64_t{0}}});
  const ValueId inner = b.node("Relu", {b.node("MatMul", {means, b.weights({8, 2})})});
  const ValueId scores = b.node("Sigmoid", {b.node("MatMul", {inner, b.weights({2, 8})})});
  const ValueId factors = b.node("Reshape", {scores, b.int64s({2, 1, 1, 8})});
  b.output(b.conv(channels_first(b, b.node("Mul", {x, factors})), 8, 4, 1));
  const Graph before = b.build(), sunk = after(before, "cancel_transposes");
  INFO(sunk.dump());
  CHECK(count(sunk, "Transpose") == 0);
  CHECK(worst_difference(before, sunk) < 1e-5);
  CHECK(worst_difference(before, after_all(before)) < 1e-5);
}

// Operators that broadcast without being elementwise: rows and columns of products are not channels and pixels.
TEST_CASE("cancel_transposes/products_behind_a_transpose") {
  struct Case {
    Shape x, other;
    bool known = true, transposed = false;  // the other operand: a constant; [N,C,H,W] after a Transpose
  };
  const Case cases[] = {{{1, 8, 1, 1}, {8, 8}},
                        {{1, 8, 6, 5}, {8, 16}},
                        {{2, 8, 6, 5}, {8}},
                        {{2, 8, 6, 5}, {1, 8, 3}},
                        {{2, 8, 6, 5}, {1, 1, 8, 3}},
                        {{1, 8, 8, 8}, {8, 8, 8}},
                        {{2, 8, 8, 8}, {2, 1, 8, 8}},
                        {{1, 8, 1, 1}, {3, 1, 8, 8}},
                        {{2, 8, 6, 5}, {8, 16}, false},
                        {{2, 8, 6, 8}, {2, 8, 1, 8}, false, true},
                        {{1, 8, 8, 8}, {1, 8, 8, 8}, false, true}};
  for (const Case& c : cases)
    for (const bool other_first : {false, true}) {
      if (other_first && (c.x[1] != c.x[3] || !(c.x[1] == c.x[2])) && !c.transposed) continue;
      GraphBuilder b;
      const ValueId x = channels_last(b, b.input("x", {c.x[0], c.x[1], c.x[2], c.x[3]}));
      const std::vector<std::int64_t> dims(c.other.dims().begin(), c.other.dims().end());
      ValueId other = c.known ? b.weights(c.other) : b.input("other", dims);
      if (c.transposed) other = channels_last(b, other);
      if (other_first && (c.transposed ? c.x[1] != c.x[3] : c.other.rank() < 2)) continue;
      const ValueId y = other_first ? b.node("MatMul", {other, x}) : b.node("MatMul", {x, other});
      b.output(b.node("Relu", {y}));
      const Graph before = b.build(), sunk = after(before, "cancel_transposes"), all = after_all(before);
      INFO(sunk.dump());
      CHECK(worst_difference(before, sunk) < 1e-5);
      CHECK(worst_difference(before, all) < 1e-5);
    }
  for (const std::string equation : {"bhwc,cd->bhwd", "bhwc,cd->bdhw", "abcd,d->abc", "abcd,abcd->abcd"}) {
    GraphBuilder b;
    const ValueId x = channels_last(b, b.input("x", {2, 6, 4, 6}));
    const Shape other = equation.starts_with("bhwc") ? Shape{6, 6}
                        : equation.size() < 12       ? Shape{6}
                                                     : Shape{2, 4, 6, 6};
    const ValueId y = b.node("Einsum", {x, b.weights(other)}, {{"equation", equation}});
    b.output(y);
    if (other.rank() < 4) b.output(b.node("Relu", {y}));
    const Graph before = b.build(), sunk = after(before, "cancel_transposes");
    INFO(sunk.dump());
    CHECK(worst_difference(before, sunk) < 1e-5);
    CHECK(worst_difference(before, after_all(before)) < 1e-5);
  }
}

TEST_CASE("cancel_transposes/a_number_a_channel_of_two") {
  for (const Shape& other : {Shape{2}, Shape{1, 2}, Shape{1, 1}, Shape{1}, Shape{}, Shape{5, 2}}) {
    GraphBuilder b;
    const ValueId x = channels_last(b, b.conv(b.input("x", {2, 3, 4, 5}), 3, 2, 1));
    b.output(b.conv(channels_first(b, b.node("Mul", {x, b.weights(other)})), 2, 3, 1));
    const Graph before = b.build(), sunk = after(before, "cancel_transposes");
    CHECK(count(sunk, "Transpose") == 0);
    CHECK(worst_difference(before, sunk) < 1e-5);
  }
}

TEST_CASE("cancel_transposes/of_what_a_fifth_dimension_widens_stays") {
  GraphBuilder b;
  const ValueId y = nhwc_conv(b, b.input("x", {2, 7, 5, 3}), 3, 8, 3, 1);
  b.output(b.node("Add", {y, b.weights({2, 1, 1, 1, 8})}));
  b.output(b.node("Mul", {y, b.weights({1, 1, 1, 1, 8})}));
  const Graph before = b.build(), sunk = after(before, "cancel_transposes");
  CHECK(count(sunk, "Transpose") == 2);
  CHECK(worst_difference(before, sunk) == 0);
}

TEST_CASE("cancel_transposes/pad_above") {
  GraphBuilder b;
  const ValueId padded = b.node("Pad", {b.input("x", {2, 7, 5, 3}), b.int64s({0, 0, 1, 0, 0, 2, 3, 0})});
  b.output(b.conv(channels_first(b, padded), 3, 4, 3));
  const Graph before = b.build(), above = after(before, "cancel_transposes"), all = after(above, "fold_pad");
  CHECK(only(above, "Transpose").inputs == std::vector<ValueId>{before.inputs[0]});
  CHECK(only(above, "Pad").inputs[0] == only(above, "Transpose").outputs[0]);
  CHECK(only(above, "Pad").name == only(before, "Pad").name);
  CHECK(count(all, "Pad") == 0);
  CHECK(worst_difference(before, all) < 1e-6);
}

TEST_CASE("cancel_transposes/pads_that_stay_above") {
  GraphBuilder b;
  const ValueId x = b.input("x", {2, 7, 5, 3}), by = b.int64s({0, 0, 1, 0, 0, 2, 3, 0});
  const auto pad = [&](ValueId from) { return b.node("Pad", {from, by}); };
  SUBCASE("others read it") {
    const ValueId padded = pad(x);
    b.output(channels_first(b, padded));
    b.output(b.node("Relu", {padded}));
  }
  SUBCASE("it is an output") {
    const ValueId padded = pad(x);
    b.output(channels_first(b, padded));
    b.output(padded);
  }
  SUBCASE("other axes change places") { b.output(b.node("Transpose", {pad(x)}, {{"perm", Ints{0, 2, 1, 3}}})); }
  SUBCASE("of three dimensions") {
    const ValueId padded = b.node("Pad", {b.input("y", {2, 7, 5}), b.int64s({0, 1, 0, 0, 2, 3})});
    b.output(b.node("Transpose", {padded}));
  }
  const Graph before = b.build(), after_pass = after(before, "cancel_transposes");
  CHECK(after_pass.node(0).type() == "Pad");
  CHECK(after_pass.nodes.size() == before.nodes.size());
  CHECK(worst_difference(before, after_pass) == 0);
}

TEST_CASE("assign_formats/one_conversion_at_each_end") {
  GraphBuilder b;
  const ValueId x = b.input("x", {2, 3, 20, 20});
  const ValueId a = b.node("Relu", {b.conv(x, 3, 32, 3, 1)});
  const ValueId s =
      b.node("Concat", {b.node("Relu", {b.conv(a, 32, 32, 1)}), b.node("Relu", {b.conv(a, 32, 32, 3, 1)})},
             {{"axis", std::int64_t{1}}});
  b.output(b.node("Sigmoid", {b.conv(s, 64, 32, 1)}));
  const Graph before = b.build(), all = after_all(before);
  INFO(all.dump());
  CHECK(moves(all) <= 2);
  CHECK(all.value(all.outputs[0]).format == formats::nchw);
  CHECK(worst_difference(before, all) < 1e-4);
}

TEST_CASE("assign_formats/nhwc_input_costs_nothing") {
  GraphBuilder b;
  const ValueId y = nhwc_conv(b, b.input("x", {2, 9, 9, 16}), 16, 32, 3, 1);
  b.output(y);
  PassContext context = pass_context();
  context.forced_algorithm = "im2col";  // reads and writes channels last
  const Graph before = b.build(), all = after_all(before, context);
  INFO(all.dump());
  CHECK(only(all, "Conv").choice->candidate.outputs[0] == formats::nhwc);
  CHECK(moves(all) == 0);
  CHECK(count(all, "Relabel") == 2);
  CHECK(worst_difference(before, all) < 1e-4);
}

// All passes with that algorithm wherever it accepts.
void check_forced(const Graph& before, const Kernel& algorithm) {
  PassContext context = pass_context();
  context.forced_algorithm = algorithm.name();
  context.forced_where_accepted = true;
  const Graph all = after_all(before, context);
  INFO(all.dump());
  CHECK(worst_difference(before, all) < 1e-4);
}

TEST_CASE("assign_formats/every_algorithm_forced") {
  for (const Kernel* algorithm : kernels_of("Conv", DeviceKind::cpu)) {
    CAPTURE(std::string(algorithm->name()));
    GraphBuilder b;
    const ValueId x = b.input("x", {2, 8, 9, 11});
    const ValueId y = b.node("Relu", {b.conv(x, 8, 8, 3, 1)});
    const ValueId z = b.node("Relu", {b.node("Add", {b.conv(y, 8, 8, 3, 1), y})});
    b.output(z);
    b.output(b.node("Flatten", {b.node("ReduceMean", {z}, {{"axes", Ints{2, 3}}})}));
    check_forced(b.build(), *algorithm);
  }
}

// Not folded, since the bias is computed.
TEST_CASE("assign_formats/a_constant_that_a_convolution_reads_as_its_data") {
  for (const std::string op : {"Conv", "ConvTranspose"})
    for (const Kernel* algorithm : kernels_of(op, DeviceKind::cpu)) {
      CAPTURE(std::string(algorithm->name()));
      GraphBuilder b;
      const ValueId bias = b.input("bias", {8});
      b.output(b.node(op, {b.weights({1, 8, 9, 11}), b.weights({8, 8, 3, 3}), bias}, {{"pads", Ints{1, 1, 1, 1}}}));
      check_forced(b.build(), *algorithm);
    }
}

TEST_CASE("choose_kernels/forced_refusals_are_listed") {
  GraphBuilder b;
  const ValueId x = b.input("x", {1, 8, 9, 11});
  b.output(b.node("Relu", {b.conv(b.conv(x, 8, 8, 5), 8, 8, 5)}));
  Graph graph = b.build();
  PassContext context = pass_context();
  context.forced_algorithm = "winograd_f4";
  const std::string message = refusal(graph, context);
  CAPTURE(message);
  CHECK(message.find("node Conv_2 (Conv): winograd_f4 refuses 1x8x9x11 -> 8, 5x5") != std::string::npos);
  CHECK(message.find("\n  node Conv_5 (Conv): winograd_f4 refuses") != std::string::npos);
  CHECK(message.find("filter is not 3x3") != std::string::npos);
  CHECK(message.find("Relu") == std::string::npos);
}

TEST_CASE("choose_kernels/a_name_that_is_none_of_the_operators") {
  const auto refused = [](const char* op, const char* algorithm) {
    GraphBuilder b;
    const ValueId x = b.input("x", {4, 4});
    b.output(std::string(op) == "MatMul" ? b.node(op, {x, b.weights({4, 4})}) : b.node(op, {x}));
    Graph graph = b.build();
    PassContext context = pass_context();
    context.layer_algorithms = {{graph.nodes[0].name, algorithm}};
    return refusal_of(ErrorKind::invalid_argument, [&] { choose_kernels(graph, context); });
  };
  CHECK(refused("Relu", "fast").find("'fast': there is nothing to choose between") != std::string::npos);
  CHECK(refused("MatMul", "fast").find("no algorithm of MatMul is called 'fast'; there are: ") != std::string::npos);
}

// If each node follows the file's types, float32 nodes compute in float32, whatever the others do.
TEST_CASE("choose_kernels/float32_beside_16_bits") {
  const auto tolerance = [](DType dtype, const char* precision, bool of_file) {
    GraphBuilder b;
    b.output(b.conv(b.input("x", {8, 64, 28, 28}, dtype), 64, 64, 3, 1));
    Graph graph = b.source();
    bind_inputs(graph, 1, {});
    graph.value(graph.outputs[0]).dtype = dtype;
    graph.value(graph.outputs[0]).shape = {8, 64, 28, 28};
    graph.value(graph.outputs[0]).typed = true;
    choose_kernels(
        graph, {.target = {reference_gpu(), parse_numerics(precision)}, .device = "cuda:0", .types_of_file = of_file});
    return graph.node(0).choice->candidate.tolerance;
  };
  const double exact = tolerance(DType::f32, "fp32", false), halves = tolerance(DType::f16, "fp16", false);
  CHECK(exact < halves);
  CHECK(tolerance(DType::f32, "fp16", true) == exact);
  CHECK(tolerance(DType::f16, "fp16", true) == halves);
}

TEST_CASE("choose_kernels/one_error_lists_every_node_that_cuda_refuses") {
  GraphBuilder b;
  const ValueId x = b.input("x", {4, 6}), zero = b.input("zero", {});
  const ValueId pads = b.int64s({1, 1, 1, 1});
  b.output(b.node("Pad", {b.node("Abs", {b.node("Pad", {x, pads, zero})}), pads, zero}));
  Graph graph = b.build();
  PassContext context{.target = {reference_gpu()}, .device = "cuda:0"};
  const std::string message = refusal(graph, context);
  CAPTURE(message);
  CHECK(message.starts_with("cannot run on cuda:0, and nothing is moved to the CPU:\n  node Pad_1 (Pad): "));
  CHECK(message.find("\n  node Pad_3 (Pad)") != std::string::npos);
  CHECK(std::count(message.begin(), message.end(), '\n') == 2);
}

TEST_CASE("assign_formats/explicit_padding_is_a_conversion_made_once") {
  GraphBuilder b;
  const ValueId x = b.input("x", {1, 4, 9, 11});
  const ValueId y = b.node("Relu", {b.conv(x, 4, 8, 3, 1)});
  b.output(b.node("Concat", {b.conv(y, 8, 8, 3, 1), b.conv(y, 8, 8, 3, 1)}, {{"axis", std::int64_t{1}}}));
  const Graph before = b.build();
  PassContext context = pass_context();
  context.forced_algorithm = "direct_packed";
  const Graph all = after_all(before, context);
  INFO(all.dump());
  int padded = 0;
  for (const Node& node : all.nodes)
    if (node.type() == "LayoutConvert" && all.value(node.outputs[0]).format.halo == Format::Halo{1, 1, 1, 1}) {
      ++padded;
      CHECK(all.value(node.inputs[0]).format == formats::nhwc);  // a step of its own
    }
  CHECK(padded == 2);  // of x, and of y for both its readers
  CHECK(worst_difference(before, all) < 1e-4);
}

TEST_CASE("passes/each_one_switched_off") {
  GraphBuilder b;
  const ValueId x = b.input("x", {2, 8, 8, 3});
  const ValueId padded = b.node("Pad", {channels_first(b, x), b.int64s({0, 0, 0, 0, 0, 0, 1, 1})});
  const ValueId y = b.batch_norm(b.conv(padded, 3, 8, 3, 0, 2), 8);
  const ValueId swish = b.node("Mul", {y, b.node("Sigmoid", {y})});
  const ValueId drop = b.node("Dropout", {b.node("Identity", {swish})});
  const ValueId z = b.node("Mul", {b.conv(drop, 8, 8, 3, 1), b.weights({8, 1, 1})});
  const ValueId sum = b.node("Relu", {b.node("Add", {z, drop})});
  b.output(b.node("Flatten", {b.node("ReduceMean", {sum}, {{"axes", Ints{2, 3}}})}));
  const Graph before = b.build();
  CHECK(worst_difference(before, after_all(before)) < 1e-4);
  CHECK(count(after_all(before), "Conv") == 2);
  for (const Pass& pass : passes()) {
    if (!pass.optional) continue;
    CAPTURE(std::string(pass.name));
    CHECK(worst_difference(before, after_all(before, {std::string(pass.name)})) < 1e-4);
  }
}
