#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>

#include "graph_builder.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

/// For a CPU with `l2_bytes` of L2 a core.
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

/// 1x1 to 64 channels, depthwise 3x3, 1x1 back and the residual, at 56x56: 784 KiB between steps.
Graph inverted_residual(std::int64_t stride = 1, std::int64_t batch = 1) {
  GraphBuilder b;
  const ValueId x = b.input("x", {-1, 16, 56, 56});
  const ValueId wide = b.node("Relu", {b.conv(x, 16, 64, 1)});
  const ValueId filtered = b.node("Conv", {wide, b.weights({64, 1, 3, 3}), b.weights({64})},
                                  {{"group", std::int64_t{64}},
                                   {"pads", std::vector<std::int64_t>{1, 1, 1, 1}},
                                   {"strides", std::vector<std::int64_t>{stride, stride}}});
  const ValueId narrow = b.conv(b.node("Relu", {filtered}), 64, 16, 1);
  b.output(stride == 1 ? b.node("Add", {x, narrow}) : narrow);
  return b.build(batch);
}

/// `count` filters a channel, 8 channels of 60x40: 75 KiB between steps.
Graph filters(std::int64_t size, int count, std::int64_t height = 60) {
  GraphBuilder b;
  ValueId x = b.input("x", {1, 8, height, 40});
  for (int i = 0; i < count; ++i)
    x = b.node("Conv", {x, b.weights({8, 1, size, size})},
               {{"group", std::int64_t{8}}, {"pads", std::vector<std::int64_t>(4, size / 2)}});
  b.output(x);
  return b.build();
}

/// First and last step, rows at a time, and rows of the strips.
std::string text_of(const Graph& graph) {
  std::string text;
  for (const Band& band : graph.bands)
    text += fmt::format("{}{}-{} {} [{}]", text.empty() ? "" : ", ", band.first, band.last, band.rows,
                        fmt::join(band.strips, " "));
  return text;
}

}  // namespace

TEST_CASE("choose_bands/inverted_residual") {
  const Graph graph = with_bands(inverted_residual(), 256 << 10);
  REQUIRE(graph.bands.size() == 1);
  const Band& band = graph.bands[0];
  REQUIRE(band.last - band.first == 2);
  CHECK(graph.node(band.first).type() == "Conv");
  REQUIRE(band.strips.size() == 2);
  CHECK(band.strips[0] == band.rows + 2);  // plus the rows above and below that a 3x3 reads
  CHECK(band.strips[1] == band.rows);
  CHECK((band.rows >= 2 && band.rows < 56));
  // The strips fit the cache, and the reason says so.
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
  CHECK(with_bands(inverted_residual(), 1 << 20, 4).bands.empty());  // each thread has a share
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

TEST_CASE("choose_bands/batch_norm_before_a_product") {
  GraphBuilder b;
  const ValueId x = b.conv(b.input("x", {1, 16, 56, 56}), 16, 64, 1);
  b.output(b.conv(b.node("Relu", {b.batch_norm(x, 64)}), 64, 16, 1));
  b.output(b.node("Sigmoid", {x}));
  const Graph graph = with_bands(b.build(), 256 << 10);
  REQUIRE(graph.bands.size() == 1);
  CHECK(graph.node(graph.bands[0].first).type() == "BatchNormalization");
  CHECK(graph.node(graph.bands[0].last).type() == "Conv");
}

TEST_CASE("choose_bands/cuts_a_chain_where_least_leaves_the_cache") {
  // 16 channels between the blocks, 64 within: bands end where channels are few.
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

// The number of rows starts at four pieces for each thread and shrinks by a quarter until the strips take at most 0.4
// of L2: at 512 KiB 14, 10 and then 6 rows of the block, with strips of 14 rows of 14 KiB, 196 KiB.
TEST_CASE("choose_bands/rows_and_cuts") {
  const Graph block = inverted_residual(), three_images = inverted_residual(1, 3), strided = inverted_residual(2);
  const Graph four = filters(3, 4), ten = filters(3, 10), odd = filters(5, 3, 61);
  struct Row {
    const Graph& graph;
    std::size_t l2_kib;
    int threads;
    const char* bands;
  };
  const Row rows[] = {{block, 512, 1, "1-3 6 [8 6]"},
                      {block, 512, 3, "1-3 4 [6 4]"},
                      {block, 800, 2, ""},
                      {block, 1100, 1, "1-3 14 [16 14]"},
                      {three_images, 800, 1, "1-3 8 [10 8]"},
                      {three_images, 800, 2, "1-3 10 [12 10]"},
                      {three_images, 1600, 1, "1-3 16 [18 16]"},
                      {three_images, 1600, 2, "1-3 20 [22 20]"},
                      {strided, 100, 3, "2-3 2 [2]"},
                      {strided, 128, 1, "2-3 6 [6]"},
                      {strided, 256, 1, "1-3 2 [5 2]"},
                      {strided, 800, 1, "1-2 6 [13]"},
                      {four, 48, 3, "1-2 4 [6], 3-4 4 [6]"},
                      {four, 64, 1, "1-2 14 [16], 3-4 14 [16]"},
                      {four, 100, 1, "1-4 6 [12 10 8]"},
                      {four, 100, 2, ""},
                      {ten, 48, 3, "1-3 4 [8 6], 4-6 4 [8 6], 7-8 4 [6], 9-10 4 [6]"},
                      {ten, 64, 2, "1-3 6 [10 8], 4-6 6 [10 8], 7-8 8 [10], 9-10 8 [10]"},
                      {ten, 100, 1, "1-4 6 [12 10 8], 5-7 10 [14 12], 8-10 10 [14 12]"},
                      {ten, 128, 1, "1-3 14 [18 16], 4-7 6 [12 10 8], 8-10 14 [18 16]"},
                      {odd, 48, 3, "1-2 6 [10]"},
                      {odd, 64, 1, "1-2 16 [20]"},
                      {odd, 128, 1, "1-3 12 [20 16]"}};
  for (const Row& row : rows) {
    CAPTURE(row.l2_kib);
    CAPTURE(row.threads);
    CHECK(text_of(with_bands(row.graph, row.l2_kib << 10, row.threads)) == row.bands);
  }
}
