// widen: floats of other sizes become float32 inside; ports keep their types.

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/half.h"
#include "ops/core/onnx_types.h"
#include "runtime/graph/file_types.h"
#include "runtime/graph/if_op.h"
#include "runtime/graph/infer_shapes.h"
#include "tests/graph/graph_builder.h"

namespace lenslet::test {

namespace {

/// x -> Mul by w -> Cast to `inner` -> plus ConstantOfShape's value, all in `dtype`.
Graph half_graph(DType dtype, const Tensor& w, const Tensor& one) {
  GraphBuilder b;
  const ValueId x = b.input("x", {2, 3}, dtype);
  const ValueId scaled = b.node("Mul", {x, b.constant(w)});
  const ValueId ones = b.node("ConstantOfShape", {b.int64s({2, 3})}, {{"value", one}});
  b.output(b.node("Add", {b.node("Cast", {scaled}, {{"to", dtype_to_onnx(dtype)}}), ones}));
  Graph graph = b.raw();
  graph.output_ports[0].dtype = dtype;
  return graph;
}

Tensor filled(DType dtype, std::uint64_t bits) {
  Tensor tensor(dtype, Shape{1});
  std::memcpy(tensor.data(), &bits, tensor.bytes());
  return tensor;
}

}  // namespace

TEST_CASE("widen/constants_attributes_and_ports") {
  struct Case {
    DType dtype;
    std::uint64_t two, one;
  };
  for (const Case& c :
       {Case{DType::f16, f16_from_f32(2), f16_from_f32(1)}, Case{DType::bf16, bf16_from_f32(2), bf16_from_f32(1)},
        Case{DType::f64, std::bit_cast<std::uint64_t>(2.0), std::bit_cast<std::uint64_t>(1.0)}}) {
    CAPTURE(std::string(to_string(c.dtype)));
    const Graph before = half_graph(c.dtype, filled(c.dtype, c.two), filled(c.dtype, c.one));
    Graph graph = after(before, "widen");
    INFO(graph.dump());
    // The file's own Cast to 16 bits rounds, and so needs one back.
    const bool rounds = is_16_bit(c.dtype);
    CHECK(count(graph, "Cast") == (rounds ? 4 : 3));
    CHECK(graph.nodes.front().type() == "Cast");
    CHECK(graph.nodes.back().type() == "Cast");
    CHECK(graph.value(graph.inputs[0]).name == "x");
    CHECK(graph.value(graph.outputs[0]).name == before.value(before.outputs[0]).name);
    for (const Value& value : graph.values)
      if (value.is_constant() && value.dtype != DType::i64) CHECK(value.dtype == DType::f32);
    // Value ids stay valid across the pass: between the casts the nodes are the same.
    for (std::size_t n = 0, at = 1; n < before.nodes.size(); ++n, ++at) {
      CHECK(graph.nodes[at].name == before.nodes[n].name);
      at += rounds && before.nodes[n].type() == "Cast" ? 1 : 0;
      CHECK(graph.nodes[at].outputs == before.nodes[n].outputs);
    }

    bind_inputs(graph, 1, {});
    infer_shapes(graph);
    CHECK(graph.value(graph.outputs[0]).dtype == c.dtype);
    CHECK(graph.value(graph.node(1).outputs[0]).dtype == DType::f32);
    Tensor x(c.dtype, Shape{2, 3});
    for (int i = 0; i < 6; ++i)
      std::memcpy(static_cast<std::byte*>(x.data()) + static_cast<std::size_t>(i) * dtype_bytes(c.dtype), &c.two,
                  dtype_bytes(c.dtype));
    const Tensor y = interpret(graph, {x})[0];
    const std::uint64_t five = c.dtype == DType::f16    ? f16_from_f32(5)
                               : c.dtype == DType::bf16 ? bf16_from_f32(5)
                                                        : std::bit_cast<std::uint64_t>(5.0);
    CHECK(std::memcmp(y.data(), &five, dtype_bytes(c.dtype)) == 0);
  }
}

TEST_CASE("widen/a_constant_that_is_the_first_value") {
  GraphBuilder b;
  const ValueId three = b.constant(Tensor::of<float>(Shape{1}, {3}).to_dtype(DType::f16));
  REQUIRE(three == 0);
  b.output(b.node("Add", {b.input("x", {1, 2}, DType::f16), three}));
  CHECK(after(b.source(), "widen").value(three).dtype == DType::f32);
}

TEST_CASE("widen/constants_that_only_casts_read_stay") {
  enum { by_cast = 1, by_node = 2, as_output = 4 };
  for (const std::vector<int>& readers : {std::vector<int>{by_cast, by_cast | by_node, by_node, by_cast | as_output},
                                          std::vector<int>{by_node, by_cast, by_cast, by_cast | by_node}}) {
    GraphBuilder b;
    for (std::size_t i = 0; i < readers.size(); ++i) b.constant(filled(DType::f16, 0x3c00));
    for (std::size_t i = 0; i < readers.size(); ++i) {
      const auto id = static_cast<ValueId>(i);
      if ((readers[i] & by_cast) != 0) b.output(b.node("Cast", {id}, {{"to", dtype_to_onnx(DType::f32)}}));
      if ((readers[i] & by_node) != 0) b.output(b.node("Neg", {id}));
      if ((readers[i] & as_output) != 0) b.output(id);
    }
    const Graph graph = after(b.raw(), "widen");
    for (std::size_t i = 0; i < readers.size(); ++i)
      CHECK(graph.value(static_cast<ValueId>(i)).dtype == (readers[i] == by_cast ? DType::f16 : DType::f32));
  }
}

TEST_CASE("widen/an_output_that_no_cast_made_gets_one") {
  for (const bool is_input : {true, false}) {
    GraphBuilder b;
    const ValueId x = b.input("x", {2}, DType::f16);
    b.output(is_input ? x : b.node("ConstantOfShape", {b.int64s({2})}, {{"value", filled(DType::f16, 0x3C00)}}));
    Graph before = b.raw();
    before.output_ports[0].dtype = DType::f16;
    Graph graph = after(before, "widen");
    INFO(graph.dump());
    CHECK(graph.nodes.back().type() == "Cast");
    CHECK(graph.nodes.back().outputs[0] == graph.outputs[0]);
    CHECK(graph.value(graph.nodes.back().inputs[0]).name ==
          (is_input ? "x:float32" : before.value(before.outputs[0]).name + ":float32"));
    CHECK(graph.value(graph.outputs[0]).name == graph.output_ports[0].name);
  }
}

TEST_CASE("widen/branches_of_an_if") {
  GraphBuilder inner;
  const ValueId two = inner.constant(filled(DType::f16, f16_from_f32(2)));
  inner.output(inner.node("Mul", {inner.input("x", {2}, DType::f16), two}));
  const IfOp::Branch multiplies{std::make_shared<const Graph>(inner.source())};
  const IfOp::Branch none{nullptr, Error(ErrorKind::unsupported, "no")};
  for (const bool first : {true, false}) {
    GraphBuilder b;
    const ValueId x = b.input("x", {2}, DType::f16), condition = b.input("c", {}, DType::boolean);
    b.output(b.node("Identity", {x}));
    Graph graph = b.raw();
    graph.nodes.back().op = std::make_shared<IfOp>(first ? multiplies : none, first ? none : multiplies);
    graph.nodes.back().inputs = {condition, x};
    const Graph wide = after(graph, "widen");
    const auto& op = dynamic_cast<const IfOp&>(*only(wide, "If").op);
    REQUIRE(op.branch(first).graph != nullptr);
    CHECK(op.branch(first).graph->value(two).dtype == DType::f32);
    CHECK(op.branch(first).graph->value(two).constant.values<float>()[0] == 2);
    CHECK(op.branch(!first).graph == nullptr);
    CHECK(op.branch(!first).refusal.has_value());
  }
}

TEST_CASE("widen/types_that_are_only_carried_stay") {
  GraphBuilder b;
  const ValueId x = b.input("x", {4}, DType::f16);
  const ValueId weights = b.constant(Tensor::of<float>(Shape{4}, {-8, 7, 0, 1}).to_dtype(DType::i4));
  const ValueId small = b.node("Cast", {x}, {{"to", dtype_to_onnx(DType::f8e4m3fn)}});
  const ValueId wide = b.node("DequantizeLinear", {small, b.constant(Tensor::of<float>(Shape{}, {2}))});
  b.output(b.node("Add", {wide, b.node("Cast", {weights}, {{"to", dtype_to_onnx(DType::f32)}})}));
  Graph graph = after(b.raw(), "widen");
  bind_inputs(graph, 1, {});
  infer_shapes(graph);
  CHECK(graph.value(weights).dtype == DType::i4);
  CHECK(graph.value(small).dtype == DType::f8e4m3fn);
  const Tensor y = interpret(graph, {Tensor::of<float>(Shape{4}, {1, 3.3F, -1000, 0}).to_dtype(DType::f16)})[0];
  const float expected[] = {-6, 13.5F, -896, 1};
  for (std::size_t i = 0; i < std::size(expected); ++i) CHECK(y.values<float>()[i] == expected[i]);
}

TEST_CASE("widen/values") {
  const auto widened = [](DType dtype, std::initializer_list<std::uint64_t> patterns) {
    Tensor tensor(dtype, Shape{static_cast<std::int64_t>(patterns.size())});
    auto* to = static_cast<std::byte*>(tensor.data());
    for (const std::uint64_t bits : patterns) {
      std::memcpy(to, &bits, dtype_bytes(dtype));
      to += dtype_bytes(dtype);
    }
    GraphBuilder b;
    b.output(b.node("Add", {b.input("x", {1}), b.constant(tensor)}));
    const Graph graph = after(b.raw(), "widen");
    for (const Value& value : graph.values)
      if (value.is_constant())
        return std::vector<float>(value.constant.values<float>().begin(), value.constant.values<float>().end());
    return std::vector<float>();
  };
  using Floats = std::vector<float>;
  const float infinity = std::numeric_limits<float>::infinity();
  CHECK(widened(DType::f16, {0x3C00, 0xC000, 0x0001, 0x7C00, 0x8000, 0x7BFF}) ==
        Floats{1, -2, 0x1p-24F, infinity, -0.0F, 65504});
  CHECK(std::isnan(widened(DType::f16, {0x7E01}).at(0)));
  CHECK(widened(DType::bf16, {0x4049, 0xBF80}) == Floats{3.140625F, -1});
  CHECK(widened(DType::f64, {std::bit_cast<std::uint64_t>(0.1)}) == Floats{0.1F});
}

TEST_CASE("widen/other_types_stay") {
  GraphBuilder b;
  const ValueId x = b.input("x", {4}, DType::i64);
  b.output(b.node("Add", {x, b.int64s({1})}));
  const Graph before = b.raw();
  const Graph widened = after(before, "widen");
  CHECK(widened.nodes.size() == 1);
  CHECK(widened.value(widened.inputs[0]).dtype == DType::i64);
}

}  // namespace lenslet::test
