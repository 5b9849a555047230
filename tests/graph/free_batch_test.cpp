// bind_inputs and free_batch: the shapes that a model gets, and which baked-in batches can be freed.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "graph_builder.h"
#include "runtime/graph/infer_shapes.h"
#include "tests/expect_error.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

using Ints = std::vector<std::int64_t>;

/// Runs a model with a declared batch of 1 at batch 5 and image by image: both must agree.
void check_freed(const GraphBuilder& model) {
  constexpr std::int64_t batch = 5;
  GraphBuilder builder = model;
  const Graph one = builder.build(1), many = builder.build(batch);
  const std::vector<Tensor> inputs = random_inputs(many, 3);
  const std::vector<Tensor> together = interpret(many, inputs);
  for (std::int64_t image = 0; image < batch; ++image) {
    std::vector<Tensor> single;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      Tensor part(DType::f32, one.value(one.inputs[i]).shape);
      std::copy_n(inputs[i].values<float>().begin() + image * part.elems(), part.elems(), part.values<float>().begin());
      single.push_back(std::move(part));
    }
    const std::vector<Tensor> alone = interpret(one, single);
    for (std::size_t i = 0; i < alone.size(); ++i) {
      REQUIRE(together[i].shape() == alone[i].shape().with(0, alone[i].shape()[0] * batch));
      Tensor part(DType::f32, alone[i].shape());
      std::copy_n(together[i].values<float>().begin() + image * part.elems(), part.elems(),
                  part.values<float>().begin());
      CHECK(relative_error(alone[i], part) < 1e-5);
    }
  }
}

/// The message that refuses a model at batch 5; it must run at batch 1.
std::string refusal(GraphBuilder model) {
  CHECK_NOTHROW(model.build(1));
  return refusal_of(ErrorKind::unsupported, [&] { model.build(5); });
}

bool mentions(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("free_batch/reshape_with_literal_one") {
  // Like mnist-cntk: [1,8,4,4] -> [1,128], then a product with a reshaped constant.
  GraphBuilder b;
  const ValueId y = b.conv(b.input("x", {1, 3, 4, 4}), 3, 8, 3, 1);
  const ValueId flat = b.node("Reshape", {y, b.int64s({1, 128})});
  const ValueId w = b.node("Reshape", {b.weights({8, 4, 4, 10}), b.int64s({128, 10})});
  b.output(b.node("Add", {b.node("MatMul", {flat, w}), b.weights({1, 10})}));
  check_freed(b);
}

TEST_CASE("free_batch/reshape_with_minus_one") {
  GraphBuilder b;
  const ValueId x = b.input("x", {1, 3, 4, 4});
  b.output(b.node("Gemm", {b.node("Reshape", {x, b.int64s({1, -1})}), b.weights({48, 5})}));
  check_freed(b);
}

TEST_CASE("free_batch/reshape_to_one_number_an_image") {
  GraphBuilder b;
  const ValueId mean = b.node("ReduceMean", {b.input("x", {1, 3, 4, 4})}, {{"axes", Ints{1, 2, 3}}});
  b.output(b.node("Reshape", {mean, b.int64s({1})}));
  check_freed(b);
}

TEST_CASE("free_batch/flatten_keeps_images_outermost") {
  for (const std::int64_t axis : {1, 2, 3, 4, -1, -3}) {
    CAPTURE(axis);
    GraphBuilder b;
    b.output(b.node("Flatten", {b.input("x", {1, 3, 4, 2})}, {{"axis", axis}}));
    check_freed(b);
  }
}

TEST_CASE("free_batch/reshape_that_needs_nothing") {
  GraphBuilder b;
  b.output(b.node("Reshape", {b.input("x", {1, 3, 4, 4}), b.int64s({0, -1})}));
  const Graph graph = b.build(5);
  CHECK(graph.value(graph.outputs[0]).shape == Shape{5, 48});
  check_freed(b);
}

TEST_CASE("free_batch/shuffle_and_rows") {
  // ShuffleNet's channel shuffle, then rows of images as in a detection head.
  GraphBuilder b;
  const ValueId x = b.input("x", {1, 6, 4, 5});
  const ValueId groups = b.node("Reshape", {x, b.int64s({1, 2, 3, 4, 5})});
  const ValueId mixed = b.node("Transpose", {groups}, {{"perm", Ints{0, 2, 1, 3, 4}}});
  const ValueId back = b.node("Reshape", {mixed, b.int64s({1, -1, 4, 5})});
  const ValueId last = b.node("Transpose", {back}, {{"perm", Ints{0, 2, 3, 1}}});
  const ValueId rows = b.node("Reshape", {last, b.int64s({-1, 6})});
  const ValueId scores = b.node("Softmax", {rows}, {{"axis", std::int64_t{1}}});
  b.output(b.node("Reshape", {scores, b.int64s({1, 20, 6})}));
  check_freed(b);
}

TEST_CASE("free_batch/of_images_of_free_size") {
  GraphBuilder b;
  b.output(b.node("Reshape", {b.input("x", {1, 3, -2, -3}), b.int64s({1, 60})}));
  Graph graph = b.source();
  bind_inputs(graph, 1, {{"x", Shape{5, 3, 4, 5}}});
  infer_shapes(graph);
  CHECK(graph.value(graph.outputs[0]).shape == Shape{5, 60});
}

TEST_CASE("free_batch/of_two_inputs") {
  GraphBuilder b;
  b.output(b.node("Add", {b.input("x", {1, 3, 4, 4}), b.input("y", {1, 3, 4, 4})}));
  check_freed(b);
  Graph graph = b.source();
  CHECK_ERROR(bind_inputs(graph, 1, {{"x", Shape{5, 3, 4, 4}}, {"y", Shape{6, 3, 4, 4}}}), invalid_argument,
              "input y: batch 6, but 5 in another input");
}

TEST_CASE("free_batch/shape_arithmetic") {
  GraphBuilder b;
  const ValueId x = b.input("x", {1, 3, 4, 4});
  const ValueId n = b.node("Gather", {b.node("Shape", {x}), b.int64s({0})}, {{"axis", std::int64_t{0}}});
  const ValueId target = b.node("Concat", {n, b.int64s({-1})}, {{"axis", std::int64_t{0}}});
  b.output(b.node("Reshape", {x, target}));
  check_freed(b);
}

TEST_CASE("free_batch/zeros_made_from_the_shape") {
  GraphBuilder b;
  const ValueId x = b.input("x", {1, 3, 4, 4});
  const ValueId zeros = b.node("ConstantOfShape", {b.node("Shape", {x})});
  b.output(b.node("Concat", {x, zeros}, {{"axis", std::int64_t{1}}}));
  check_freed(b);
}

TEST_CASE("free_batch/constant_joined_to_each_image") {
  GraphBuilder b;
  const ValueId x = b.input("x", {1, 3, 4, 4});
  b.output(b.node("Concat", {b.weights({1, 2, 4, 4}), x}, {{"axis", std::int64_t{1}}}));
  check_freed(b);
}

TEST_CASE("free_batch/indices_for_each_image") {
  GraphBuilder b;
  const ValueId x = b.input("x", {1, 3, 4, 4});
  const ValueId best = b.node("TopK", {x, b.int64s({2})}, {{"axis", std::int64_t{3}}}, 13, 2);
  const ValueId where = b.source().nodes.back().outputs[1];
  b.output(b.node("GatherElements", {x, where}, {{"axis", std::int64_t{3}}}));
  b.output(b.node("ScatterElements", {x, where, best}, {{"axis", std::int64_t{3}}}));
  const ValueId first = b.node("Slice", {where, b.int64s({0}), b.int64s({1}), b.int64s({2})});
  const ValueId tuples = b.node("Squeeze", {first, b.int64s({2})});
  b.output(b.node("GatherND", {x, b.node("Slice", {tuples, b.int64s({0}), b.int64s({1}), b.int64s({2})})},
                  {{"batch_dims", std::int64_t{2}}}));
  check_freed(b);
}

TEST_CASE("free_batch/two_outputs") {
  GraphBuilder b;
  const ValueId x = b.input("x", {1, 3, 4, 4});
  b.output(b.node("Split", {x, b.int64s({1, 2})}, {{"axis", std::int64_t{1}}}, 13, 2));
  b.output(b.source().nodes.back().outputs[1]);
  check_freed(b);
}

TEST_CASE("free_batch/first_output_left_out") {
  GraphBuilder b;
  b.node("Split", {b.input("x", {1, 3, 4, 4}), b.int64s({1, 2})}, {{"axis", std::int64_t{1}}}, 13, 2);
  b.output(b.source().nodes.back().outputs[1]);
  Graph graph = b.raw();
  graph.nodes.back().outputs[0] = no_id;
  bind_inputs(graph, 5, {});
  infer_shapes(graph);
  CHECK(graph.value(graph.outputs[0]).shape == Shape{5, 2, 4, 4});
}

TEST_CASE("free_batch/what_fits_no_batch_is_not_blamed_on_one") {
  GraphBuilder b;
  const ValueId x = b.input("x", {1, 3, 4, 4});
  b.output(b.node("Relu", {b.node("MatMul", {x, b.weights({7, 2})})}));
  b.output(b.node("Softmax", {x}, {{"axis", std::int64_t{0}}}));
  const Error error = error_of([&] { b.build(5); });
  CHECK(mentions(error.what(), "(MatMul)"));
  CHECK(!mentions(error.what(), "bakes in"));
}

TEST_CASE("free_batch/refused_by_name") {
  GraphBuilder b;
  const ValueId x = b.input("x", {1, 3, 4, 4});
  SUBCASE("softmax over images") {
    b.output(b.node("Softmax", {x}, {{"axis", std::int64_t{0}}}));
    CHECK(mentions(refusal(b), "(Softmax): bakes in batch 1"));
    CHECK(mentions(refusal(b), "ask for a batch of 1"));
  }
  SUBCASE("flatten of all") {
    b.output(b.node("Flatten", {x}, {{"axis", std::int64_t{0}}}));
    CHECK(mentions(refusal(b), "(Flatten): bakes in batch 1"));
  }
  SUBCASE("softmax over transposed images") {
    const ValueId turned = b.node("Transpose", {x}, {{"perm", Ints{1, 0, 2, 3}}});
    b.output(b.node("Softmax", {turned}, {{"axis", std::int64_t{1}}}));
    CHECK(mentions(refusal(b), "(Softmax): bakes in batch 1: it works along dimension 1"));
  }
  SUBCASE("concat along images") {
    b.output(b.node("Concat", {x, x}, {{"axis", std::int64_t{0}}}));
    CHECK(mentions(refusal(b), "(Concat): bakes in batch 1"));
  }
  SUBCASE("mean over images") {
    b.output(b.node("ReduceMean", {x}, {{"axes", Ints{0, 2}}}));
    CHECK(mentions(refusal(b), "(ReduceMean): bakes in batch 1"));
  }
  SUBCASE("gather of an image") {
    b.output(b.node("Gather", {x, b.int64s({0})}, {{"axis", std::int64_t{0}}}));
    CHECK(mentions(refusal(b), "(Gather): bakes in batch 1"));
  }
  SUBCASE("normalized over images") {
    SUBCASE("lp_normalization") {
      b.output(b.node("LpNormalization", {x}, {{"axis", std::int64_t{0}}}));
      CHECK(mentions(refusal(b), "(LpNormalization): bakes in batch 1"));
    }
    SUBCASE("mean_variance_normalization") {
      b.output(b.node("MeanVarianceNormalization", {x}));
      CHECK(mentions(refusal(b), "(MeanVarianceNormalization): bakes in batch 1"));
    }
  }
  SUBCASE("indices that name images") {
    const ValueId of_all = b.node("Reshape", {b.int64s({0, 0, 0}), b.int64s({1, 3, 1, 1})});
    SUBCASE("gather_elements") {
      b.output(b.node("GatherElements", {x, of_all}, {{"axis", std::int64_t{0}}}));
      CHECK(mentions(refusal(b), "(GatherElements): bakes in batch 1"));
    }
    SUBCASE("gather_nd") {
      b.output(b.node("GatherND", {x, b.int64s({0})}));
      CHECK(mentions(refusal(b), "(GatherND): bakes in batch 1"));
    }
    SUBCASE("scatter_elements") {
      b.output(b.node("ScatterElements", {x, of_all, b.weights({1, 3, 1, 1})}, {{"axis", std::int64_t{0}}}));
      CHECK(mentions(refusal(b), "(ScatterElements): bakes in batch 1"));
    }
    SUBCASE("scatter_elements into one image") {
      b.output(b.node("ScatterElements", {x, of_all, b.weights({1, 3, 1, 1})}, {{"axis", std::int64_t{2}}}));
      CHECK(mentions(refusal(b), "(ScatterElements): bakes in batch 1"));
    }
    SUBCASE("scatter_nd") {
      b.output(b.node("ScatterND", {x, b.int64s({0}), b.weights({3, 4, 4})}));
      CHECK(mentions(refusal(b), "(ScatterND): bakes in batch 1"));
    }
  }
  SUBCASE("order among images") {
    const AttributeList axis{{"axis", std::int64_t{0}}};
    SUBCASE("cum_sum") {
      b.output(b.node("CumSum", {x, b.int64s({0})}));
      CHECK(mentions(refusal(b), "(CumSum): bakes in batch 1"));
    }
    SUBCASE("top_k") {
      b.output(b.node("TopK", {x, b.int64s({1})}, axis, 13, 2));
      CHECK(mentions(refusal(b), "(TopK): bakes in batch 1"));
    }
    SUBCASE("hardmax") {
      b.output(b.node("Hardmax", {x}, axis));
      CHECK(mentions(refusal(b), "(Hardmax): bakes in batch 1"));
    }
  }
  SUBCASE("images as rows of a triangle") {
    b.output(b.node("Trilu", {b.node("Reshape", {x, b.int64s({1, 48})})}, {}, 14));
    CHECK(mentions(refusal(b), "(Trilu): bakes in batch 1"));
  }
  SUBCASE("sequences of a batch") {
    b.output(b.node("ReverseSequence", {x, b.int64s({2})},
                    {{"batch_axis", std::int64_t{0}}, {"time_axis", std::int64_t{1}}}));
    CHECK(mentions(refusal(b), "(ReverseSequence): bakes in batch 1"));
  }
  SUBCASE("crop to one image") {
    b.output(b.node("CenterCropPad", {x, b.int64s({1, 3, 2, 2})}, {}, 18));
    CHECK(mentions(refusal(b), "(CenterCropPad): bakes in batch 1"));
  }
  SUBCASE("gemm with transA") {
    const ValueId rows = b.node("Reshape", {x, b.int64s({1, 48})});
    b.output(b.node("Gemm", {rows, b.weights({1, 5})}, {{"transA", std::int64_t{1}}}));
    CHECK(mentions(refusal(b), "(Gemm): bakes in batch 1"));
  }
  SUBCASE("product of images") {
    const ValueId rows = b.node("Reshape", {x, b.int64s({1, 48})}), columns = b.node("Reshape", {x, b.int64s({48, 1})});
    b.output(b.node("MatMul", {rows, columns}));
    CHECK(mentions(refusal(b), "(MatMul): bakes in batch 1"));
  }
  SUBCASE("all at once, downstream not repeated") {
    b.output(b.node("Relu", {b.node("Softmax", {x}, {{"axis", std::int64_t{0}}})}));
    b.output(b.node("Flatten", {x}, {{"axis", std::int64_t{0}}}));
    const std::string message = refusal(b);
    CHECK(mentions(message, "2 nodes"));
    CHECK(mentions(message, "(Softmax): "));
    CHECK(mentions(message, "(Flatten): "));
    CHECK(!mentions(message, "Relu"));
  }
}

// Images in the second dimension, as in exported recurrent layers; W, R, states and lengths for one image.
TEST_CASE("free_batch/images_in_another_dimension") {
  const auto recurrent = [](GraphBuilder& b, ValueId x, std::int64_t batch_first) {
    const Shape state = batch_first == 1 ? Shape{1, 2, 5} : Shape{2, 1, 5};
    const ValueId lengths = b.constant(Tensor::of<std::int32_t>({1}, {3}));
    return b.node(
        "LSTM",
        {x, b.weights({2, 20, 3}), b.weights({2, 20, 5}), b.weights({2, 40}), lengths, b.weights(state),
         b.weights(state)},
        {{"hidden_size", std::int64_t{5}}, {"direction", std::string("bidirectional")}, {"layout", batch_first}}, 14,
        3);
  };
  SUBCASE("steps first") {
    GraphBuilder b;
    const ValueId x = b.node("Reshape", {b.input("x", {1, 3, 2, 2}), b.int64s({1, 3, 4})});
    const ValueId y = recurrent(b, b.node("Transpose", {x}, {{"perm", Ints{2, 0, 1}}}), 0);
    const ValueId last = b.source().nodes.back().outputs[1];
    const ValueId turned = b.node("Transpose", {y}, {{"perm", Ints{0, 2, 1, 3}}});
    // A literal in dimension 1; the Add fixes the other dimensions.
    const ValueId joined = b.node("Reshape", {turned, b.int64s({4, 1, 10})});
    const ValueId shifted = b.node("Add", {joined, b.weights({4, 1, 10})});
    b.output(b.node("Transpose", {shifted}, {{"perm", Ints{1, 0, 2}}}));
    b.output(b.node("Transpose", {last}, {{"perm", Ints{1, 2, 0}}}));
    check_freed(b);
  }
  // A literal may mean rows of steps and images, or images concatenated in a row; another literal decides.
  for (const Ints& rows : {Ints{4, 10}, Ints{-1, 10}})
    SUBCASE(rows[0] > 0 ? "rows of steps and images" : "rows without a literal") {
      GraphBuilder b;
      const ValueId x = b.node("Transpose", {b.input("x", {1, 4, 10})}, {{"perm", Ints{1, 0, 2}}});
      const ValueId flat = b.node("Reshape", {x, b.constant(Tensor::of<std::int64_t>({2}, rows))});
      const ValueId scores = b.node("Add", {b.node("MatMul", {flat, b.weights({10, 6})}), b.weights({6})});
      const ValueId steps = b.node("Reshape", {scores, b.int64s({4, 1, 6})});
      b.output(b.node("Transpose", {steps}, {{"perm", Ints{1, 0, 2}}}));
      CHECK(b.build(5).value(flat).shape == Shape{20, 10});
      check_freed(b);
    }
  SUBCASE("images side by side") {
    GraphBuilder b;
    const ValueId x = b.node("Transpose", {b.input("x", {1, 4, 10})}, {{"perm", Ints{1, 0, 2}}});
    const ValueId flat = b.node("Relu", {b.node("Reshape", {x, b.int64s({4, -1})})});
    const ValueId apart = b.node("Reshape", {flat, b.int64s({4, 1, 10})});
    b.output(b.node("Transpose", {apart}, {{"perm", Ints{1, 0, 2}}}));
    CHECK(b.build(5).value(flat).shape == Shape{4, 50});
    check_freed(b);
  }
  SUBCASE("images first") {
    GraphBuilder b;
    b.output(recurrent(b, b.input("x", {1, 4, 3}), 1));
    b.output(b.source().nodes.back().outputs[2]);
    check_freed(b);
  }
  SUBCASE("states made from the batch") {
    GraphBuilder b;
    const ValueId x = b.node("Transpose", {b.input("x", {1, 4, 3})}, {{"perm", Ints{1, 0, 2}}});
    const ValueId n = b.node("Gather", {b.node("Shape", {x}), b.int64s({1})}, {{"axis", std::int64_t{0}}});
    const ValueId dims = b.node("Concat", {b.int64s({1}), n, b.int64s({5})}, {{"axis", std::int64_t{0}}});
    const ValueId y = b.node("RNN",
                             {x, b.weights({1, 5, 3}), b.weights({1, 5, 5}), no_id, no_id,
                              b.node("Neg", {b.node("ConstantOfShape", {dims})})},
                             {{"hidden_size", std::int64_t{5}}}, 14, 1);
    b.output(b.node("Transpose", {b.node("Squeeze", {y, b.int64s({1})})}, {{"perm", Ints{1, 0, 2}}}));
    check_freed(b);
  }
  SUBCASE("refused") {
    GraphBuilder b;
    const ValueId x = b.input("x", {1, 4, 3});
    SUBCASE("images as steps") {
      b.output(b.node("LSTM", {x, b.weights({1, 20, 3}), b.weights({1, 20, 5})}));
      CHECK(mentions(refusal(b), "(LSTM): bakes in batch 1: it works along dimension 0, which holds the images"));
    }
    const ValueId turned = b.node("Transpose", {x}, {{"perm", Ints{1, 0, 2}}});
    SUBCASE("cut apart") {
      b.output(b.node("Reshape", {turned, b.int64s({3, 4})}));
      CHECK(mentions(refusal(b), "(Reshape): bakes in batch 1: it merges dimension 1, which holds the images"));
    }
    SUBCASE("in two dimensions") {
      const auto first = [&](ValueId of, std::int64_t axis) {
        return b.node("Slice", {of, b.int64s({0}), b.int64s({1}), b.int64s({axis})});
      };
      b.output(b.node("Add", {first(x, 1), first(turned, 0)}));
      CHECK(mentions(refusal(b), "(Add): bakes in batch 1: its operands hold the images in different dimensions"));
    }
    SUBCASE("fixed in the second") {
      b.output(b.node("Concat", {turned, b.weights({4, 2, 3})}, {{"axis", std::int64_t{1}}}));
      CHECK(mentions(refusal(b), "(Concat): bakes in batch 1"));
    }
  }
}

TEST_CASE("free_batch/what_is_stretched_over_one_image_is_over_all") {
  GraphBuilder b;
  const ValueId x = b.input("x", {1, 3, 4, 4}), z = b.input("z", {3});
  b.output(b.node("Add", {x, b.node("Reshape", {z, b.int64s({1, 3, 1, 1})})}));
  CHECK(b.build(2).value(b.source().outputs[0]).shape == Shape{2, 3, 4, 4});
}

TEST_CASE("bind_inputs/symbols") {
  GraphBuilder b;
  const ValueId x = b.input("x", {-1, 3, -2, -3}), y = b.input("y", {-1, 3, -2, -3});
  b.output(b.node("Add", {x, y}));
  Graph graph = b.source();
  CHECK_THROWS_WITH_AS(bind_inputs(graph, 2, {}), doctest::Contains("x [N,3,H,W] (--shape x=2x3x?x?)"), Error);
  bind_inputs(graph, 1, {{"x", Shape{4, 3, 5, 6}}});
  CHECK(graph.value(y).shape == Shape{4, 3, 5, 6});
  Graph other = b.source();
  CHECK_ERROR(bind_inputs(other, 1, {{"x", Shape{4, 2, 5, 6}}}), invalid_argument,
              "input x: shape [4,2,5,6] does not fit the declared [N,3,H,W]");
  CHECK_ERROR(bind_inputs(other, 1, {{"x", Shape{4, 3, 5}}}), invalid_argument,
              "input x: shape [4,3,5] does not fit the declared [N,3,H,W]");
  CHECK_THROWS_WITH_AS(bind_inputs(other, 1, {{"z", Shape{1}}}), doctest::Contains("inputs: x, y"), Error);
  CHECK_ERROR(bind_inputs(other, 0, {}), invalid_argument, "a batch of 0: there must be at least one image");
}

// A value fixes its own port's shape, and those of other ports by the names of dimensions.
TEST_CASE("bind_inputs/a_value_gives_a_shape") {
  GraphBuilder b;
  const ValueId x = b.input("x", {-1, 3, -2, -3}), y = b.input("y", {-1, 3, -2, -3});
  b.output(b.node("Add", {x, y}));
  const Tensor value = random_f32({4, 3, 5, 6}, 1);
  const auto bound = [&](const std::vector<std::pair<std::string, Shape>>& shapes, const Tensor& of_x) {
    Graph graph = b.source();
    bind_inputs(graph, 1, shapes, {{"x", of_x}});
    return graph;
  };
  const Graph graph = bound({}, value);
  CHECK(graph.value(y).shape == Shape{4, 3, 5, 6});
  CHECK(graph.node(0).inputs[1] == y);
  CHECK(graph.value(graph.node(0).inputs[0]).is_constant());
  CHECK(bound({{"x", Shape{4, 3, 5, 6}}}, value).value(y).shape == Shape{4, 3, 5, 6});
  CHECK_ERROR(bound({{"x", Shape{4, 3, 5, 7}}}, value), invalid_argument,
              "input x: shape [4,3,5,7] is asked for, but its value has [4,3,5,6]");
  CHECK_ERROR(bound({}, random_f32({4, 2, 5, 6}, 1)), invalid_argument,
              "input x: shape [4,2,5,6] does not fit the declared [N,3,H,W]");
  CHECK_ERROR(bound({}, value.to_format(formats::nhwc)), invalid_argument, "input x: its value is not in layout nchw");
  GraphBuilder unnamed;
  unnamed.output(unnamed.node("Relu", {unnamed.input("x", {-1, 3, -2, -3})}));
  Graph without = unnamed.source();
  without.input_ports[0].dim_names.assign(4, "");
  bind_inputs(without, 1, {}, {{"x", value}});
  CHECK(without.value(without.inputs[0]).shape == Shape{4, 3, 5, 6});
}

// As in ONNX Runtime (1.32): given sizes need not agree, but then the name does not fix a third input.
TEST_CASE("bind_inputs/one_name_of_two_sizes") {
  GraphBuilder b;
  const ValueId x = b.input("x", {-1, 3, -2, -3}), y = b.input("y", {-1, 3, -2, -3}), z = b.input("z", {-1, 3, -2, 8});
  for (const ValueId id : {x, y, z}) b.output(b.node("Relu", {id}));
  Graph graph = b.source();
  bind_inputs(graph, 1, {{"x", Shape{4, 3, 5, 6}}, {"y", Shape{2, 3, 5, 7}}});
  CHECK(graph.value(x).shape == Shape{4, 3, 5, 6});
  CHECK(graph.value(y).shape == Shape{2, 3, 5, 7});
  CHECK(graph.value(z).shape == Shape{1, 3, 5, 8});
  Graph other = b.source();
  CHECK_THROWS_WITH_AS(bind_inputs(other, 1, {{"x", Shape{4, 3, 5, 6}}, {"y", Shape{4, 3, 6, 6}}}),
                       doctest::Contains("z [N,3,H,8]"), Error);
}

TEST_CASE("bind_inputs/an_input_that_nothing_reads") {
  GraphBuilder b;
  const ValueId label = b.input("label", {2, -2}), x = b.input("x", {1, 3, 4, 4});
  b.output(b.node("Relu", {x}));
  Graph graph = b.source();
  CHECK_ERROR(bind_inputs(graph, 4, {}), invalid_argument,
              "give a shape for each input with free dimensions: label [2,H]");
  graph.input_ports[0].unread = true;
  Graph given = graph;
  bind_inputs(graph, 4, {});
  CHECK(graph.value(x).shape == Shape{4, 3, 4, 4});
  CHECK(graph.value(label).shape == Shape{2, 1});
  bind_inputs(given, 4, {{"label", Shape{7, 5}}});
  CHECK(given.value(x).shape == Shape{4, 3, 4, 4});
}

TEST_CASE("bind_inputs/fixed_batch") {
  GraphBuilder b;
  b.output(b.node("Relu", {b.input("x", {3, 2, 4, 4})}));
  CHECK(b.build(1).value(0).shape == Shape{3, 2, 4, 4});
  CHECK(b.build(3).value(0).shape == Shape{3, 2, 4, 4});
  CHECK_THROWS_WITH_AS(b.build(2), doctest::Contains("fixed batch of 3: ask for no other"), Error);
}

TEST_CASE("infer_shapes/lists_every_fault_once") {
  GraphBuilder b;
  const ValueId x = b.input("x", {1, 3, 4, 4});
  const ValueId bad = b.node("Reshape", {x, b.int64s({5, 5})});
  b.output(b.node("Relu", {bad}));
  b.output(b.node("MatMul", {x, b.weights({7, 2})}));
  try {
    b.build();
    FAIL("accepted");
  } catch (const Error& error) {
    const std::string message = error.what();
    CHECK(mentions(message, "2 nodes"));
    CHECK(mentions(message, "(Reshape): "));
    CHECK(mentions(message, "(MatMul): "));
    CHECK(!mentions(message, "Relu"));
  }
}

TEST_CASE("infer_shapes/the_first_fault_says_the_kind") {
  for (const bool unsupported_first : {true, false}) {
    GraphBuilder b;
    const ValueId x = b.input("x", {2, 3}), numbers = b.input("numbers", {2, 3}, DType::i64);
    for (const bool unsupported : {unsupported_first, !unsupported_first})
      b.output(unsupported ? b.node("Sin", {numbers}) : b.node("MatMul", {x, x}));
    const Error error = error_of([&] { b.build(); });
    CHECK(error.kind() == (unsupported_first ? ErrorKind::unsupported : ErrorKind::invalid_model));
    CHECK(mentions(error.what(), "2 nodes cannot run"));
  }
}

TEST_CASE("infer_shapes/a_renamed_constant_takes_no_memory") {
  GraphBuilder b;
  const ValueId w = b.weights({4, 6});
  const ValueId flat = b.node("Reshape", {w, b.int64s({24})}), negative = b.node("Neg", {w});
  b.output(b.node("Add", {b.input("x", {24}), flat}));
  b.output(negative);
  const Graph graph = b.build();
  CHECK(graph.value(flat).constant.data() == graph.value(w).constant.data());
  CHECK(graph.value(flat).constant.shape() == Shape{24});
  CHECK(graph.value(negative).constant.data() != graph.value(w).constant.data());
}

TEST_CASE("infer_shapes/shape_arithmetic_is_known") {
  GraphBuilder b;
  const ValueId x = b.input("x", {-1, 3, 4, 4});
  const ValueId n = b.node("Gather", {b.node("Shape", {x}), b.int64s({0})}, {{"axis", std::int64_t{0}}});
  const ValueId target = b.node("Concat", {n, b.int64s({-1})}, {{"axis", std::int64_t{0}}});
  b.output(b.node("Reshape", {x, target}));
  const Graph graph = b.build(2);
  CHECK(graph.nodes.size() == 1);
  CHECK(graph.value(graph.outputs[0]).shape == Shape{2, 48});
}
