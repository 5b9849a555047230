#include <doctest/doctest.h>

#include "graph_builder.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

/// For a CPU whose cores have so much L2.
Graph with_bands(const Graph& graph, std::size_t l2_bytes, int threads = 1, const char* forced = "") {
  DeviceProfile device = pass_context().target.device;
  device.l2_bytes = l2_bytes;
  device.units = threads;
  PassContext context{.target = {.device = device}, .forced_algorithm = forced, .forced_where_accepted = true};
  Graph changed = after(graph, "fuse_activation");
  for (const char* const pass : {"fuse_residual", "choose_kernels", "assign_formats", "choose_bands"})
    changed = after(changed, pass, context);
  return changed;
}

/// 1x1 to 64 channels, 3x3 a channel, 1x1 back and the residual, at 56x56: 784 KiB between any two.
Graph inverted_residual(std::int64_t stride = 1) {
  GraphBuilder b;
  const ValueId x = b.input("x", {1, 16, 56, 56});
  const ValueId wide = b.node("Relu", {b.conv(x, 16, 64, 1)});
  const ValueId filtered = b.node("Conv", {wide, b.weights({64, 1, 3, 3}), b.weights({64})},
                                  {{"group", std::int64_t{64}},
                                   {"pads", std::vector<std::int64_t>{1, 1, 1, 1}},
                                   {"strides", std::vector<std::int64_t>{stride, stride}}});
  const ValueId narrow = b.conv(b.node("Relu", {filtered}), 64, 16, 1);
  b.output(stride == 1 ? b.node("Add", {x, narrow}) : narrow);
  return b.build();
}

}  // namespace

TEST_CASE("choose_bands/inverted_residual") {
  const Graph graph = with_bands(inverted_residual(), 256 << 10);
  REQUIRE(graph.bands.size() == 1);
  const Band& band = graph.bands[0];
  REQUIRE(band.last - band.first == 2);
  CHECK(graph.node(band.first).type() == "Conv");
  REQUIRE(band.strips.size() == 2);
  CHECK(band.strips[0] == band.rows + 2);  // the rows above and below that a 3x3 reads
  CHECK(band.strips[1] == band.rows);
  CHECK((band.rows >= 2 && band.rows < 56));
  // What they take fits the cache, and the reason says so.
  CHECK((band.strips[0] + band.strips[1]) * 56 * 64 * 4 < 256 << 10);
  CHECK(band.rows == 2);
  // (2 + 2 + 2) and 2 * 56 rows of 14 KiB
  CHECK(band.reason == "2 rows at a time: 84 KiB between the steps, not 1568");
}

TEST_CASE("choose_bands/strides") {
  const Graph graph = with_bands(inverted_residual(2), 256 << 10);
  REQUIRE(graph.bands.size() == 1);
  CHECK(graph.bands[0].strips[0] == 2 * graph.bands[0].rows + 1);
}

TEST_CASE("choose_bands/none_where_values_stay_in_the_cache") {
  CHECK(with_bands(inverted_residual(), 4 << 20).bands.empty());
  CHECK(with_bands(inverted_residual(), 1 << 20, 4).bands.empty());  // each thread has a part
}

TEST_CASE("choose_bands/none_where_a_row_is_larger_than_the_cache") {
  CHECK(with_bands(inverted_residual(), 16 << 10).bands.empty());
}

TEST_CASE("choose_bands/none_where_a_kernel_has_no_rows") {
  CHECK(with_bands(inverted_residual(), 256 << 10, 1, "direct").bands.empty());
}

TEST_CASE("choose_bands/none_of_values_in_nchw") {
  GraphBuilder b;
  ValueId x = b.input("x", {1, 3, 448, 448});
  for (int i = 0; i < 2; ++i)
    x = b.node("MaxPool", {x},
               {{"kernel_shape", std::vector<std::int64_t>{3, 3}}, {"pads", std::vector<std::int64_t>(4, 1)}});
  b.output(x);
  const Graph graph = with_bands(b.build(), 256 << 10);
  INFO(graph.dump());
  REQUIRE(graph.nodes.size() == 2);
  REQUIRE(graph.value(graph.node(0).outputs[0]).format == formats::nchw);
  CHECK(graph.bands.empty());
}

TEST_CASE("choose_bands/values_that_others_read_stay_whole") {
  GraphBuilder b;
  const ValueId x = b.input("x", {1, 16, 56, 56}), wide = b.conv(x, 16, 64, 1);
  b.output(b.conv(wide, 64, 16, 1));
  SUBCASE("another node") { b.output(b.node("Sigmoid", {wide})); }
  SUBCASE("the network's output") { b.output(wide); }
  CHECK(with_bands(b.build(), 256 << 10).bands.empty());
}

TEST_CASE("choose_bands/cuts_a_chain_where_least_leaves_the_cache") {
  // 16 channels between the blocks, 64 within: bands end where there are few.
  GraphBuilder b;
  ValueId x = b.input("x", {1, 16, 112, 112});
  for (int i = 0; i < 3; ++i) {
    const ValueId wide = b.conv(x, 16, 64, 1);
    const ValueId filtered = b.node("Conv", {wide, b.weights({64, 1, 3, 3})},
                                    {{"group", std::int64_t{64}}, {"pads", std::vector<std::int64_t>{1, 1, 1, 1}}});
    x = b.conv(filtered, 64, 16, 1);
  }
  b.output(x);
  const Graph graph = with_bands(b.build(), 512 << 10);
  REQUIRE(graph.bands.size() >= 2);
  for (const Band& band : graph.bands)
    for (const NodeId end : {band.first - 1, band.last})
      if (end >= 0 && graph.node(end).type() == "Conv") CHECK(graph.value(graph.node(end).outputs[0]).shape[1] == 16);
}
