// place_parts: the inputs of a Concat of channels are written in place.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "graph_builder.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

using Ints = std::vector<std::int64_t>;

ValueId concat(GraphBuilder& b, std::vector<ValueId> inputs, std::int64_t axis = 1) {
  return b.node("Concat", std::move(inputs), {{"axis", axis}});
}
ValueId relu(GraphBuilder& b, ValueId x) { return b.node("Relu", {x}); }
/// Appends a layer, so that no earlier value is a graph output.
void finish(GraphBuilder& b, ValueId x, std::int64_t c) { b.output(b.conv(x, c, 16, 1)); }

/// For each Concat, in order, the inputs that are not copied.
std::vector<Ints> placed(const Graph& graph) {
  std::vector<Ints> list;
  for (const Node& node : graph.nodes)
    if (node.type() == "Concat") list.push_back(integers_attribute(*node.op, "placed").value_or(Ints()));
  return list;
}

/// After all passes for a GPU, with one algorithm for all convolutions.
Graph on_gpu(GraphBuilder& b, std::string_view precision, const std::string& algorithm) {
  const PassContext context{.target = {reference_gpu(), parse_numerics(precision)},
                            .device = "cuda:0",
                            .forced_algorithm = algorithm,
                            .forced_where_accepted = true};
  return after_all(b.build(2), context);
}

struct OnGpu {
  const char *precision, *algorithm;
};
constexpr OnGpu on_gpus[] = {
    {"fp32", "implicit_gemm"}, {"fp32", "winograd_f4"}, {"fp16", "mma_gemm"}, {"bf16", "mma_gemm"}};

/// After all passes, with the same values as before.
Graph checked(GraphBuilder& b, std::int64_t batch = 1) {
  const Graph before = b.build(batch), all = after_all(before), apart = after_all(before, {"place_parts"});
  INFO(all.dump());
  CHECK(worst_difference(before, all) < 1e-4);
  CHECK(worst_difference(apart, all) == 0);
  for (const Value& value : all.values)
    if (value.part.whole != no_id) {
      CHECK(value.format.pixel_pitch == all.value(value.part.whole).shape[1]);
      CHECK(all.value(value.part.whole).part.whole == no_id);
      CHECK(value.part.channel + value.shape[1] <= value.format.pixel_pitch);
    }
  return all;
}

}  // namespace

TEST_CASE("place_parts/two_branches") {
  for (const std::int64_t axis : {1, -3}) {
    GraphBuilder b;
    const ValueId x = relu(b, b.conv(b.input("x", {2, 3, 9, 11}), 3, 16, 3, 1));
    finish(b, concat(b, {relu(b, b.conv(x, 16, 32, 1)), relu(b, b.conv(x, 16, 48, 3, 1))}, axis), 80);
    CHECK(placed(checked(b, 2)) == std::vector<Ints>{{0, 1}});
  }
}

TEST_CASE("place_parts/pools_and_transposed_convolutions") {
  GraphBuilder b;
  const ValueId x = relu(b, b.conv(b.input("x", {1, 3, 12, 12}), 3, 16, 3, 1));
  const ValueId half = b.node("MaxPool", {x}, {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}});
  const ValueId up = b.node("ConvTranspose", {relu(b, b.conv(half, 16, 32, 3, 1)), b.weights({32, 16, 2, 2})},
                            {{"strides", Ints{2, 2}}});
  const ValueId mean =
      b.node("AveragePool", {x}, {{"kernel_shape", Ints{3, 3}}, {"pads", Ints{1, 1, 1, 1}}, {"strides", Ints{1, 1}}});
  finish(b, concat(b, {up, x, mean}), 48);
  // Three convolutions and pools read x: MaxPool and AveragePool skip the gaps between its pixels.
  CHECK(placed(checked(b)) == std::vector<Ints>{{0, 1, 2}});
}

// Upsampled features of 24 and 48 channels, all in 16 bits: neither Casts nor copies.
TEST_CASE("place_parts/parts_of_bfloat16_begin_at_16_bytes") {
  for (const std::int64_t c : {20, 24, 48}) {
    GraphBuilder b;
    const ValueId x = relu(b, b.conv(b.input("x", {1, 16, 12, 12}), 16, c, 3, 1));
    const ValueId half = b.node("MaxPool", {x}, {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}});
    const ValueId up = b.node("ConvTranspose", {half, b.weights({c, c, 2, 2})}, {{"strides", Ints{2, 2}}});
    finish(b, concat(b, {x, up}), 2 * c);
    const PassContext context{.target = {cpu_profile(1), parse_numerics("bf16")}};
    const Graph graph = after_all(b.build(1), context);
    INFO(graph.dump());
    CHECK(graph.value(only(graph, "ConvTranspose").outputs[0]).dtype == DType::bf16);
    CHECK(count(graph, "Cast") == 1);  // of the network's output
    CHECK(placed(graph) == std::vector<Ints>{c % 8 == 0 ? Ints{0, 1} : Ints{0}});
  }
}

TEST_CASE("place_parts/each_of_nested_ones_is_a_part_of_the_largest") {
  for (const bool lists : {false, true}) {  // each layer concatenates all before it: singly, or already joined
    CAPTURE(lists);
    GraphBuilder b;
    std::vector<ValueId> made{relu(b, b.conv(b.input("x", {2, 3, 10, 10}), 3, 32, 3, 1))};
    ValueId all = made[0];
    std::int64_t c = 32;
    for (int layer = 0; layer < 3; ++layer, c += 16) {
      const ValueId normal = relu(b, b.batch_norm(all, c));
      made.push_back(b.conv(relu(b, b.conv(normal, c, 32, 1)), 32, 16, 3, 1));
      all = lists ? concat(b, made) : concat(b, {all, made.back()});
    }
    finish(b, relu(b, b.batch_norm(all, c)), c);
    const std::vector<Ints> expected =
        lists ? std::vector<Ints>{{0, 1}, {0, 1, 2}, {0, 1, 2, 3}} : std::vector<Ints>{{0, 1}, {0, 1}, {0, 1}};
    CHECK(placed(checked(b, 2)) == expected);
  }
}

TEST_CASE("place_parts/others_are_copied") {
  const auto of = [](const auto& second, std::int64_t c, std::int64_t axis = 1) {
    GraphBuilder b;
    const ValueId x = relu(b, b.conv(b.input("x", {1, 3, 8, 8}), 3, 16, 3, 1));
    finish(b, concat(b, {relu(b, b.conv(x, 16, 16, 1)), second(b, x)}, axis), c);
    return placed(checked(b));
  };
  SUBCASE("which others read that cannot step over") {
    CHECK(of(
              [](GraphBuilder& b, ValueId x) {
                const ValueId y = relu(b, b.conv(x, 16, 16, 3, 1));
                b.output(b.conv(y, 16, 4, 3));
                return y;
              },
              32) == std::vector<Ints>{{0}});
  }
  SUBCASE("which are outputs of the network") {
    CHECK(of(
              [](GraphBuilder& b, ValueId x) {
                const ValueId y = relu(b, b.conv(x, 16, 16, 3, 1));
                b.output(y);
                return y;
              },
              32) == std::vector<Ints>{{0}});
  }
  SUBCASE("which a residual is added to") {
    CHECK(of(
              [](GraphBuilder& b, ValueId x) {
                return relu(b, b.node("Add", {b.conv(x, 16, 16, 3, 1), x}));
              },
              32) == std::vector<Ints>{{0}});
  }
  SUBCASE("which would share cache lines with their neighbours") {
    CHECK(of([](GraphBuilder& b, ValueId x) { return relu(b, b.conv(x, 16, 20, 3, 1)); }, 36) == std::vector<Ints>{{}});
  }
  SUBCASE("which are constants") {
    CHECK(of([](GraphBuilder& b, ValueId) { return b.weights({1, 16, 8, 8}); }, 32) == std::vector<Ints>{{0}});
  }
  SUBCASE("which are one of several outputs") {
    CHECK(of(
              [](GraphBuilder& b, ValueId x) {
                const ValueId wide = relu(b, b.conv(x, 16, 32, 3, 1));
                return b.node("Split", {wide}, {{"axis", std::int64_t{1}}}, 13, 2) + 1;
              },
              32) == std::vector<Ints>{{0}});
  }
  SUBCASE("which are, or are read, under another name") {
    const auto to_last = [](GraphBuilder& b, ValueId x) {
      return b.node("Transpose", {x}, {{"perm", Ints{0, 2, 3, 1}}});
    };
    const auto to_first = [](GraphBuilder& b, ValueId x) {
      return b.node("Transpose", {x}, {{"perm", Ints{0, 3, 1, 2}}});
    };
    CHECK(of([&](GraphBuilder& b, ValueId x) { return to_first(b, b.node("Softmax", {to_last(b, x)})); }, 32) ==
          std::vector<Ints>{{0}});
    CHECK(of(
              [&](GraphBuilder& b, ValueId x) {
                const ValueId y = relu(b, b.conv(x, 16, 16, 3, 1));
                b.output(b.node("Reshape", {to_last(b, y), b.int64s({1, -1})}));
                return y;
              },
              32) == std::vector<Ints>{{0}});
  }
  SUBCASE("which are joined along another axis") {
    CHECK(of([](GraphBuilder& b, ValueId x) { return relu(b, b.conv(x, 16, 16, 3, 1)); }, 16, 2) ==
          std::vector<Ints>{{}});
  }
}

// 2^30 elements do not fit 32-bit indices.
TEST_CASE("place_parts/an_image_of_2_to_the_30_elements_is_copied") {
  for (const std::int64_t width : {4000, 4096}) {
    GraphBuilder b;
    const ValueId x = relu(b, b.conv(b.input("x", {1, 3, 1024, width}), 3, 16, 1));
    finish(b, concat(b, {relu(b, b.conv(x, 16, 128, 1)), relu(b, b.conv(x, 16, 128, 1))}), 256);
    CHECK(placed(after_all(b.build())) == std::vector<Ints>{width == 4000 ? Ints{0, 1} : Ints{}});
  }
}

TEST_CASE("place_parts/the_same_value_twice") {
  GraphBuilder b;
  const ValueId x = relu(b, b.conv(b.input("x", {1, 3, 8, 8}), 3, 16, 3, 1));
  const ValueId y = relu(b, b.conv(x, 16, 16, 1));
  finish(b, concat(b, {y, relu(b, b.conv(x, 16, 32, 1)), y}), 64);
  CHECK(placed(checked(b)) == std::vector<Ints>{{0, 1}});
}

TEST_CASE("place_parts/one_value_in_two_joins") {
  GraphBuilder b;
  const ValueId x = relu(b, b.conv(b.input("x", {1, 3, 8, 8}), 3, 16, 3, 1));
  const ValueId y = relu(b, b.conv(x, 16, 16, 1)), z = relu(b, b.conv(x, 16, 16, 3, 1));
  const ValueId first = b.conv(concat(b, {z, y}), 32, 16, 1);
  finish(b, concat(b, {first, y, z}), 48);
  CHECK(placed(checked(b)) == std::vector<Ints>{{}, {0, 1, 2}});
}

TEST_CASE("place_parts/of_a_split") {
  GraphBuilder b;
  const auto split = [&](ValueId x) {
    b.node("Split", {x, b.int64s({16, 16, 16})}, {{"axis", std::int64_t{1}}}, 13, 3);
    return b.source().nodes.back().outputs;
  };
  const auto pool = [&](ValueId x) { return b.node("MaxPool", {x}, {{"kernel_shape", Ints{2, 2}}}); };
  const std::vector<ValueId> parts = split(b.conv(b.input("x", {2, 3, 9, 7}), 3, 48, 3, 1));
  std::vector<ValueId> read;
  Ints expected{0, 2};
  SUBCASE("read by steps that take a pitch") {
    expected = {0, 1, 2};
    for (const ValueId part : parts) read.push_back(pool(part));
  }
  SUBCASE("one is read by a step that takes none, too") {
    for (const ValueId part : parts) read.push_back(pool(part));
    read.push_back(b.conv(parts[1], 16, 16, 3, 1));
  }
  SUBCASE("one is an output") {
    for (const ValueId part : parts) read.push_back(pool(part));
    b.output(parts[1]);
  }
  SUBCASE("one is not read") {
    for (const std::size_t i : {0U, 2U}) read.push_back(pool(parts[i]));
  }
  SUBCASE("parts of a part, beside a join") {
    expected = {0, 1, 2};
    const ValueId wide = concat(b, {parts[0], b.conv(b.input("w", {2, 3, 9, 7}), 3, 32, 1)});
    for (const ValueId part : split(wide)) read.push_back(pool(part));
    for (const ValueId part : {parts[1], parts[2]}) read.push_back(pool(part));
  }
  SUBCASE("of a network's input") {
    expected = {};
    for (const ValueId part : split(b.input("z", {2, 48, 9, 7}))) read.push_back(pool(part));
    for (const ValueId part : parts) read.push_back(b.conv(part, 16, 16, 3, 1));
  }
  for (const ValueId y : read) b.output(b.conv(y, 16, 4, 1));
  const Graph all = checked(b, 2);
  CAPTURE(all.dump());
  for (const Node& node : all.nodes)
    if (node.type() == "Split") CHECK(integers_attribute(*node.op, "placed").value_or(Ints()) == expected);
}

TEST_CASE("place_parts/cuda/of_a_split") {
  for (const auto& [precision, algorithm] : on_gpus) {
    GraphBuilder b;
    const ValueId x = b.conv(b.input("x", {2, 16, 9, 7}), 16, 48, 3, 1);
    b.node("Split", {x, b.int64s({16, 16, 16})}, {{"axis", std::int64_t{1}}}, 13, 3);
    const std::vector<ValueId> parts = b.source().nodes.back().outputs;
    const ValueId scaled = b.node("Mul", {b.conv(parts[0], 16, 16, 3, 1), parts[1]});  // as FocalNet's query
    b.output(b.conv(b.node("Sub", {scaled, parts[2]}), 16, 16, 1));
    const Graph all = on_gpu(b, precision, algorithm);
    CAPTURE(all.dump());
    CHECK(integers_attribute(*only(all, "Split").op, "placed").value_or(Ints()) == Ints{1, 2});
  }
}

TEST_CASE("place_parts/cuda/branches") {
  for (const OnGpu& way : on_gpus) {
    const std::string precision = way.precision, algorithm = way.algorithm;
    CAPTURE(precision);
    CAPTURE(algorithm);
    GraphBuilder b;
    const ValueId x = relu(b, b.conv(b.input("x", {2, 16, 12, 12}), 16, 32, 3, 1));
    const AttributeList window{{"kernel_shape", Ints{3, 3}}, {"pads", Ints{1, 1, 1, 1}}, {"strides", Ints{1, 1}}};
    const ValueId most = b.node("MaxPool", {x}, window), mean = b.node("AveragePool", {x}, window);
    finish(b, concat(b, {relu(b, b.conv(x, 32, 24, 3, 1)), most, b.conv(x, 32, 40, 3, 1), mean}), 128);
    const Graph graph = on_gpu(b, precision, algorithm);
    INFO(graph.dump());
    CHECK(placed(graph) == std::vector<Ints>{{0, 1, 2, 3}});
    for (const Value& value : graph.values)
      if (value.part.whole != no_id) CHECK(value.format.pixel_pitch == 128);
  }
}

TEST_CASE("place_parts/cuda/each_of_nested_ones_is_a_part_of_the_largest") {
  for (const OnGpu& way : on_gpus) {
    const std::string precision = way.precision, algorithm = way.algorithm;
    CAPTURE(precision);
    CAPTURE(algorithm);
    GraphBuilder b;
    ValueId all = relu(b, b.conv(b.input("x", {2, 16, 10, 10}), 16, 32, 3, 1));
    std::int64_t c = 32;
    for (int layer = 0; layer < 2; ++layer, c += 16) {
      const ValueId inner = relu(b, b.conv(relu(b, b.batch_norm(all, c)), c, 32, 3, 1));
      all = concat(b, {all, b.conv(inner, 32, 16, 3, 1)});
    }
    finish(b, relu(b, b.batch_norm(all, c)), c);
    const Graph graph = on_gpu(b, precision, algorithm);
    INFO(graph.dump());
    CHECK(placed(graph) == std::vector<Ints>{{0, 1}, {0, 1}});
  }
}

TEST_CASE("place_parts/cuda/parts_begin_at_16_bytes") {
  for (const OnGpu& way : on_gpus) {
    const std::string precision = way.precision, algorithm = way.algorithm;
    CAPTURE(precision);
    GraphBuilder b;
    const ValueId x = relu(b, b.conv(b.input("x", {2, 16, 12, 12}), 16, 16, 3, 1));
    finish(b, concat(b, {relu(b, b.conv(x, 16, 20, 3, 1)), relu(b, b.conv(x, 16, 20, 3, 1))}), 40);
    const Graph graph = on_gpu(b, precision, algorithm);
    INFO(graph.dump());
    CHECK(placed(graph) == std::vector<Ints>{std::string(precision) == "fp32" ? Ints{0, 1} : Ints{0}});
  }
}
