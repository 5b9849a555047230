// Channels that need padding to 16 bytes for convolutions with TMA: assign_formats pads the pixel pitch, and operators
// between such convolutions keep the padding.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "base/aligned_format.h"
#include "graph_builder.h"
#include "ops/core/choose.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

using Ints = std::vector<std::int64_t>;

ValueId relu(GraphBuilder& b, ValueId x) { return b.node("Relu", {x}); }

Graph on_gpu(GraphBuilder& b, const DeviceProfile& device, std::string_view precision, std::int64_t batch) {
  return after_all(b.build(batch), {.target = {device, parse_numerics(precision)}, .device = "cuda:0"});
}

/// Conversions that are neither from nor to nchw (a network's ends), of images or of single pixels. Single pixels have
/// no padding in the home format, so the rule weighs a conversion against an algorithm that reads them unpadded.
int conversions_inside(const Graph& graph, bool of_one_pixel) {
  int conversions = 0;
  for (const Node& node : graph.nodes) {
    if (node.type() != "LayoutConvert") continue;
    const Value &from = graph.value(node.inputs[0]), &to = graph.value(node.outputs[0]);
    const bool at_an_end = from.format == formats::nchw || to.format == formats::nchw;
    if (!at_an_end && (from.shape[2] * from.shape[3] == 1) == of_one_pixel) ++conversions;
  }
  return conversions;
}
int with_pitch(const Graph& graph) {
  int values = 0;
  for (const Value& value : graph.values) values += value.format.pixel_pitch != 0 ? 1 : 0;
  return values;
}

/// A unit of ShuffleNetV2 with a residual, a pool and a global pool, with 58 and 116 channels.
GraphBuilder shuffled() {
  GraphBuilder b;
  const auto depthwise = [&](ValueId x, std::int64_t c) {
    return b.node("Conv", {x, b.weights({c, 1, 3, 3})}, {{"pads", Ints{1, 1, 1, 1}}, {"group", c}});
  };
  const ValueId x = relu(b, b.conv(b.input("x", {-1, 24, 20, 20}), 24, 58, 1));
  const ValueId y = relu(b, b.conv(depthwise(relu(b, b.conv(x, 58, 58, 1)), 58), 58, 58, 1));
  const ValueId both = b.node("ChannelShuffle", {x, y}, {{"groups", std::int64_t{2}}, {"num_outputs", std::int64_t{1}}},
                              1, 1, "lenslet");
  const ValueId next = b.node("Add", {b.conv(relu(b, both), 116, 116, 3, 1), both});
  const ValueId half =
      b.node("MaxPool", {b.node("HardSwish", {next}, {}, 14)}, {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}});
  const ValueId joined = b.node("Concat", {half, relu(b, b.conv(half, 116, 33, 3, 1))}, {{"axis", std::int64_t{1}}});
  const std::vector<ValueId> mean{b.node("GlobalAveragePool", {relu(b, b.conv(joined, 149, 149, 1))})};
  b.output(b.conv(mean[0], 149, 10, 1));
  return b;
}

}  // namespace

TEST_CASE("room/what_stands_between_convolutions_takes_it") {
  for (const char* const precision : {"fp16", "bf16", "tf32"}) {
    CAPTURE(precision);
    GraphBuilder b = shuffled();
    const Graph graph = on_gpu(b, reference_gpu(), precision, 64);
    INFO(graph.dump());
    CHECK(conversions_inside(graph, false) == 0);
    CHECK(conversions_inside(graph, true) <= 1);  // before the last layer
    CHECK(with_pitch(graph) >= 7);
    for (const Value& value : graph.values)
      if (value.format.pixel_pitch != 0 && value.part.whole == no_id) {
        CHECK(value.format == aligned_nhwc(value.shape[1], value.dtype));
        const auto pixels = static_cast<std::size_t>(value.shape[0] * value.shape[2] * value.shape[3]);
        CHECK(value.bytes() == pixels * static_cast<std::size_t>(value.format.pixel_pitch) * dtype_bytes(value.dtype));
      }
  }
}

TEST_CASE("room/none_in_float32_or_where_nothing_reads_by_copies") {
  DeviceProfile older = reference_gpu();
  older.capability = 80;
  older.clusters = false;
  GraphBuilder b = shuffled();
  CHECK(with_pitch(on_gpu(b, reference_gpu(), "fp32", 8)) == 0);
  CHECK(with_pitch(on_gpu(b, older, "fp16", 8)) == 0);
}

TEST_CASE("room/home_format") {
  const Target fp16{reference_gpu(), parse_numerics("fp16")}, tf32{reference_gpu(), parse_numerics("tf32")};
  const auto home = [](DType dtype, std::int64_t c, const Target& target, std::int64_t size = 9) {
    return to_string(home_format({dtype, {2, c, size, size}}, target));
  };
  CHECK(home(DType::f16, 100, fp16) == "nhwc/104");
  CHECK(home(DType::f16, 104, fp16) == "nhwc");
  CHECK(home(DType::f16, 5, fp16) == "nhwc/8");
  CHECK(home(DType::f16, 4, fp16) == "nhwc");       // twice the bytes
  CHECK(home(DType::f16, 100, fp16, 1) == "nhwc");  // one pixel
  CHECK(home(DType::f32, 58, fp16) == "nhwc");
  CHECK(home(DType::f32, 58, tf32) == "nhwc/60");
  CHECK(home(DType::f32, 58, {reference_gpu(), {}}) == "nhwc");
  CHECK(home(DType::f16, 58, pass_context().target) == "nhwc");
}

TEST_CASE("room/parts_of_a_padded_value") {
  GraphBuilder b;
  const ValueId x = relu(b, b.conv(b.input("x", {-1, 16, 24, 24}), 16, 16, 3, 1));
  const ValueId joined = b.node("Concat", {relu(b, b.conv(x, 16, 48, 3, 1)), relu(b, b.conv(x, 16, 52, 3, 1))},
                                {{"axis", std::int64_t{1}}});
  b.output(b.conv(joined, 100, 16, 3, 1));
  const Graph graph = on_gpu(b, reference_gpu(), "fp16", 64);
  INFO(graph.dump());
  int parts = 0;
  for (const Value& value : graph.values) {
    if (value.part.whole == no_id) continue;
    ++parts;
    CHECK(value.format.pixel_pitch == 104);
    CHECK(graph.value(value.part.whole).format.pixel_pitch == 104);
  }
  CHECK(parts == 2);
}
