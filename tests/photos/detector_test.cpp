#include "lenslet/detector.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "lenslet/error.h"
#include "runtime/exec/model_impl.h"
#include "tests/exec/small_net.h"
#include "tests/expect_error.h"
#include "tests/random_seed.h"

namespace lenslet {
namespace {

using test::add_node;
using Tables = std::vector<std::pair<std::string, Tensor>>;

constexpr float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();

/// A network of x[1,3,20,40] whose outputs are constants. It reads x for an output that no card names.
Model net_of(const Tables& tables) {
  Graph graph;
  graph.name = "tables";
  const ValueId x = test::add_port(graph, "x", DType::f32, {1, 3, 20, 40});
  for (const auto& [name, table] : tables) test::add_output(graph, graph.add_constant(name, table));
  test::add_output(graph, add_node(graph, "Relu", {x}));
  return make_model(std::move(graph));
}

Card card_of(const nlohmann::json& boxes, const std::string& output = "", std::int64_t class_offset = 0) {
  const nlohmann::json card{{"input", {{"size", {20, 40}}}},
                            {"resize", {{"mode", "stretch"}}},
                            {"output", {{"name", output}, {"class_offset", class_offset}, {"boxes", boxes}}}};
  return parse_card(card.dump(), "x.card.json");
}

/// Twice the input's size: a box of the photo is twice that of the input.
Picture photo(std::int64_t height = 40, std::int64_t width = 80, std::int64_t channels = 3) {
  return {std::vector<std::uint8_t>(static_cast<std::size_t>(height * width * channels), 99), height, width, channels};
}

Detector detector_of(const Tables& tables, const Card& card) {
  return {net_of(tables), card, std::nullopt, test::on_cpu()};
}

void check_found(const std::vector<Detection>& found, const std::vector<Detection>& expected) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    CAPTURE(i);
    CHECK(found[i].index == expected[i].index);
    CHECK(found[i].label == expected[i].label);
    CHECK(found[i].score == doctest::Approx(expected[i].score));
    CHECK(found[i].box.left == doctest::Approx(expected[i].box.left));
    CHECK(found[i].box.top == doctest::Approx(expected[i].box.top));
    CHECK(found[i].box.right == doctest::Approx(expected[i].box.right));
    CHECK(found[i].box.bottom == doctest::Approx(expected[i].box.bottom));
  }
}

/// Rows to columns.
Tensor transposed(const Tensor& tensor) {
  Tensor result(DType::f32, {1, tensor.shape()[2], tensor.shape()[1]});
  const std::int64_t rows = tensor.shape()[1], columns = tensor.shape()[2];
  for (std::int64_t i = 0; i < rows * columns; ++i)
    result.values<float>()[static_cast<std::size_t>(i % columns * rows + i / columns)] =
        tensor.values<float>()[static_cast<std::size_t>(i)];
  return result;
}

TEST_CASE("detector/boxes and scores apart: every class above the threshold") {
  const Tables tables{{"scores", Tensor::of<float>({1, 3, 3}, {.9f, .3f, .6f, .9f, .1f, .1f, 0, .8f, .2f})},
                      {"boxes", Tensor::of<float>({1, 3, 4}, {1, 2, 3, 4, 5, 6, 7, 8, 30, 10, 50, 19})}};
  const nlohmann::json boxes{{"form", "boxes_scores"}, {"boxes", "boxes"}};
  // The class 0 is the background; the last box reaches out of the photo.
  check_found(detector_of(tables, card_of(boxes, "scores", 1)).detect(photo()),
              {{{60, 20, 80, 38}, 0, "", .8}, {{2, 4, 6, 8}, 1, "", .6}, {{2, 4, 6, 8}, 0, "", .3}});
  const auto every = detector_of(tables, card_of(boxes, "scores")).detect(photo(), {.threshold = 0, .top = 4});
  REQUIRE(every.size() == 4);
  CHECK(every[0].index == 0);
  CHECK(every[1].box.left == 10);  // equal scores in the order of boxes
  // As halves of the input, from the center.
  Tables halves = tables;
  halves[1].second = Tensor::of<float>({3, 4}, {.5f, .5f, .5f, 1, 0, 0, .5f, .5f, 2, 2, .1f, .1f});  // without a 1
  nlohmann::json centers = boxes;
  centers["coordinates"] = "center";
  centers["normalized"] = true;
  check_found(detector_of(halves, card_of(centers, "scores", 1)).detect(photo(), {.threshold = .2}),
              {{{20, 0, 60, 40}, 1, "", .6}, {{20, 0, 60, 40}, 0, "", .3}});
}

TEST_CASE("detector/YOLO's rows and columns: the best class of a box") {
  const Tensor rows = Tensor::of<float>({1, 3, 7}, {10, 10, 4, 6, .2f, .9f,  .3f,    //
                                                    11, 10, 4, 6, .3f, .1f,  .95f,   //
                                                    10, 10, 4, 6, .1f, .85f, .8f});  // suppressed by the first
  const std::vector<Detection> expected{{{18, 14, 26, 26}, 2, "", .95}, {{16, 14, 24, 26}, 1, "", .9}};
  check_found(detector_of({{"y", transposed(rows)}}, card_of({{"form", "yolov8"}})).detect(photo()), expected);
  CHECK(detector_of({{"y", transposed(rows)}}, card_of({{"form", "yolov8"}})).detect(photo(), {.iou = 1}).size() == 3);
  const Card corners = card_of({{"form", "yolov8"}, {"coordinates", "corners"}});
  CHECK(detector_of({{"y", transposed(rows)}}, corners).detect(photo()).empty());
  // Objectness times the class's score.
  check_found(detector_of({{"y", rows}}, card_of({{"form", "yolov5"}})).detect(photo(), {.threshold = .1}),
              {{{18, 14, 26, 26}, 1, "", .3 * .95}, {{16, 14, 24, 26}, 0, "", .2 * .9}});
}

TEST_CASE("detector/suppressed by the graph: nothing is suppressed again") {
  const Tensor rows =
      Tensor::of<float>({1, 4, 6}, {1, 1, 9, 9, .5f, 3, 1, 1, 9, 9, .7f, 3, 0, 0, 0, 0, 0, 0, 2, 2, 8, 8, .6f, 0});
  const std::vector<Detection> expected{
      {{2, 2, 18, 18}, 3, "", .7}, {{4, 4, 16, 16}, 0, "", .6}, {{2, 2, 18, 18}, 3, "", .5}};
  check_found(detector_of({{"y", rows}}, card_of({{"form", "end_to_end"}})).detect(photo()), expected);
  CHECK(detector_of({{"y", rows}}, card_of({{"form", "end_to_end"}})).detect(photo(), {.top = 2}).size() == 2);
  // torchvision's, where class 0 is the background.
  const Tables tables{{"boxes", Tensor::of<float>({4, 4}, {1, 1, 9, 9, 1, 1, 9, 9, 0, 0, 1, 1, 2, 2, 8, 8})},
                      {"labels", Tensor::of<std::int64_t>({4}, {4, 4, 0, 1})},
                      {"scores", Tensor::of<float>({4}, {.5f, .7f, .9f, .6f})}};
  const nlohmann::json boxes{{"form", "boxes_labels_scores"}, {"boxes", "boxes"}, {"labels", "labels"}};
  check_found(detector_of(tables, card_of(boxes, "scores", 1)).detect(photo()), expected);
}

TEST_CASE("detector/outputs whose shape only a run gives") {
  for (const float least : {.55f, 2.0f}) {  // two rows are left, and none
    Graph graph;
    graph.name = "late";
    const ValueId x = test::add_port(graph, "x", DType::f32, {1, 3, 20, 40});
    const ValueId largest = add_node(graph, "ReduceMax", {x}, {{"keepdims", std::int64_t{0}}});
    const ValueId none = add_node(graph, "Mul", {largest, graph.add_constant("zero", Tensor::of<float>({}, {0}))});
    const ValueId all = graph.add_constant("all", Tensor::of<float>({4}, {.5f, .7f, .1f, .6f}));
    const ValueId scores = add_node(graph, "Add", {all, none});
    const ValueId good =
        add_node(graph, "Greater", {scores, graph.add_constant("least", Tensor::of<float>({}, {least}))});
    const ValueId where = add_node(graph, "Flatten", {add_node(graph, "NonZero", {good})}, {{"axis", std::int64_t{0}}});
    const auto pick = [&](const char* name, Tensor of) {
      const ValueId picked = add_node(graph, "Gather", {graph.add_constant(name, std::move(of)), where});
      const ValueId axes = graph.add_constant(std::string(name) + "_axes", Tensor::of<std::int64_t>({1}, {0}));
      test::add_output(graph, add_node(graph, "Squeeze", {picked, axes}));
      return graph.value(graph.outputs.back()).name;
    };
    const std::string boxes =
        pick("boxes", Tensor::of<float>({4, 4}, {1, 1, 9, 9, 1, 1, 9, 9, 0, 0, 1, 1, 2, 2, 8, 8}));
    const std::string labels = pick("labels", Tensor::of<std::int64_t>({4}, {3, 3, 3, 0}));
    const std::string found = pick("scores", Tensor::of<float>({4}, {.5f, .7f, .1f, .6f}));
    const Card card = card_of({{"form", "boxes_labels_scores"}, {"boxes", boxes}, {"labels", labels}}, found);
    Detector detector(make_model(std::move(graph)), card, std::nullopt, test::on_cpu());
    CHECK(detector.plan().late_outputs.size() == 3);
    std::vector<Detection> expected{{{2, 2, 18, 18}, 3, "", .7}, {{4, 4, 16, 16}, 0, "", .6}};
    if (least > 1) expected.clear();
    check_found(detector.detect(photo()), expected);
  }
}

TEST_CASE("detector/what is no finite number, or has no area in the photo, is left out") {
  Tensor rows = Tensor::of<float>({1, 9, 6}, {nan, 1, 9, 9, .9f, 0, 1, inf, 9, 9, .9f, 0,   1, 1, 9, 9, nan, 0,
                                              1,   1, 9, 9, inf, 0, 1, 1,   9, 9, .9f, nan, 9, 1, 1, 9, .9f, 0,
                                              -9,  1, 0, 9, .9f, 0, 3, 1,   9, 1, .9f, 0,   1, 1, 9, 9, .8f, 0});
  check_found(detector_of({{"y", rows}}, card_of({{"form", "end_to_end"}})).detect(photo()),
              {{{2, 2, 18, 18}, 0, "", .8}});
  const Tensor yolo = Tensor::of<float>({1, 2, 7}, {10, 10, 4, 6, 1, nan, .5f, 10, 10, 4, 6, inf, .7f, .6f});
  check_found(detector_of({{"y", yolo}}, card_of({{"form", "yolov5"}})).detect(photo()),
              {{{16, 14, 24, 26}, 1, "", .5}});
  check_found(detector_of({{"y", transposed(yolo)}}, card_of({{"form", "yolov8"}})).detect(photo(), {.threshold = .65}),
              {{{16, 14, 24, 26}, 0, "", 1}, {{16, 14, 24, 26}, 1, "", .7}});
  CHECK(detector_of({{"y", Tensor(DType::f32, {1, 0, 6})}}, card_of({{"form", "end_to_end"}})).detect(photo()).empty());
}

TEST_CASE("detector/the best 30,000 boxes are compared") {
  Tensor rows(DType::f32, {1, 30'010, 6});
  for (std::size_t i = 0; i < 30'010; ++i) {
    const float row[] = {1, 1, 9, 9, 0.5F + static_cast<float>(i) * 1e-5F, static_cast<float>(i)};
    std::ranges::copy(row, rows.values<float>().begin() + static_cast<std::ptrdiff_t>(6 * i));
  }
  const auto found = detector_of({{"y", rows}}, card_of({{"form", "end_to_end"}})).detect(photo(), {.top = 1'000'000});
  REQUIRE(found.size() == 30'000);
  CHECK(found.front().index == 30'009);
  CHECK(found.back().index == 10);
}

TEST_CASE("detector/a letterbox, and a reduced JPEG") {
  const Tensor row = Tensor::of<float>({1, 1, 6}, {15, 5, 35, 15, .9f, 0});
  Card card = card_of({{"form", "end_to_end"}});
  card.spec.resize = ImageSpec::Resize::fit;
  card.spec.pad = ImageSpec::Pad::center;
  // 40 x 40 becomes 20 x 20 with 10 columns on the left: the box ends at the photo's edge.
  check_found(detector_of({{"y", row}}, card).detect(photo(40, 40)), {{{10, 10, 40, 30}, 0, "", .9}});
  Picture reduced = photo(40, 40, 1);
  reduced.reduction = 4;
  check_found(detector_of({{"y", row}}, card).detect(reduced), {{{40, 40, 160, 120}, 0, "", .9}});
}

/// A box for each of the 2 x 2 cells of x[1,1,8,8]; the score is the cell's mean.
Detector cells_detector(DType input) {
  Graph graph;
  graph.name = "cells";
  const ValueId x = test::add_port(graph, "x", input, {1, 1, 8, 8});
  const ValueId pixels = input == DType::f32 ? x : add_node(graph, "Cast", {x}, {{"to", std::int64_t{1}}});
  using Integers = std::vector<std::int64_t>;
  const ValueId mean =
      add_node(graph, "AveragePool", {pixels}, {{"kernel_shape", Integers{4, 4}}, {"strides", Integers{4, 4}}});
  const ValueId shape = graph.add_constant("shape", Tensor::of<std::int64_t>({3}, {1, 4, 1}));
  const ValueId scale = graph.add_constant("scale", Tensor::of<float>({}, {1 / 255.0f}));
  test::add_output(graph, add_node(graph, "Mul", {add_node(graph, "Reshape", {mean, shape}), scale}));
  const ValueId boxes =
      graph.add_constant("boxes", Tensor::of<float>({1, 4, 4}, {0, 0, 4, 4, 4, 0, 8, 4, 0, 4, 4, 8, 4, 4, 8, 8}));
  test::add_output(graph, boxes);
  const nlohmann::json card{
      {"input", {{"size", {8, 8}}, {"channels", "gray"}}},
      {"resize", {{"mode", "stretch"}}},
      {"output",
       {{"name", graph.value(graph.outputs[0]).name}, {"boxes", {{"form", "boxes_scores"}, {"boxes", "boxes"}}}}}};
  return {make_model(std::move(graph)), parse_card(card.dump(), "cells.card.json"), std::nullopt, test::on_cpu()};
}

TEST_CASE("detector/tiles: an object of an overlap is found once, in pixels of the photo") {
  for (const DType input : {DType::f32, DType::u8}) {
    Picture picture = photo(20, 12, 1);
    std::ranges::fill(picture.pixels, std::uint8_t{0});
    const auto paint = [&](std::int64_t top, std::int64_t left) {
      for (std::int64_t y = top; y < top + 4; ++y)
        for (std::int64_t x = left; x < left + 4; ++x) picture.pixels[static_cast<std::size_t>(y * 12 + x)] = 255;
    };
    paint(4, 4);  // in four tiles
    paint(16, 8);
    Detector detector = cells_detector(input);
    check_found(detector.detect(picture, {.threshold = .9, .tile_overlap = 4}),
                {{{4, 4, 8, 8}, 0, "", 1}, {{8, 16, 12, 20}, 0, "", 1}});
    CHECK(detector.detect(picture, {.threshold = .9}).empty());  // the whole photo at once has larger cells
    CHECK(detector.detect(picture, {.threshold = .9, .iou = 1, .tile_overlap = 4}).size() == 5);
    CHECK_ERROR(detector.detect(picture, {.tile_overlap = 8}), invalid_argument, "overlap by 8");
  }
}

/// The textbook's: takes the best box that is left, and removes what it hides.
std::vector<std::size_t> brute_force(const std::vector<Detection>& found, double iou, std::size_t most) {
  std::vector<bool> gone(found.size());
  std::vector<std::size_t> kept;
  while (kept.size() < most) {
    std::size_t best = found.size();
    for (std::size_t i = 0; i < found.size(); ++i)
      if (!gone[i] && (best == found.size() || found[i].score > found[best].score)) best = i;
    if (best == found.size()) break;
    kept.push_back(best);
    const Box& a = found[best].box;
    for (std::size_t i = 0; i < found.size(); ++i) {
      const Box& b = found[i].box;
      const double both = std::max(0.0, std::min(a.right, b.right) - std::max(a.left, b.left)) *
                          std::max(0.0, std::min(a.bottom, b.bottom) - std::max(a.top, b.top));
      const double either = (a.right - a.left) * (a.bottom - a.top) + (b.right - b.left) * (b.bottom - b.top) - both;
      if (i == best || (found[i].index == found[best].index && both / either > iou)) gone[i] = true;
    }
  }
  return kept;
}

TEST_CASE("detector/non-maximum suppression equals a brute-force one") {
  std::mt19937_64 random(test::random_seed());
  const auto number = [&](int most) { return static_cast<double>(random() % static_cast<unsigned>(most)); };
  std::size_t kept = 0, drawn = 0;
  for (int round = 0; round < 200; ++round) {
    std::vector<Detection> found(random() % 60);
    for (Detection& d : found) {
      const double left = number(20), top = number(20);
      // Whole numbers and few scores: equal ones, and ratios that are the threshold itself.
      d = {{left, top, left + 1 + number(12), top + 1 + number(12)},
           static_cast<std::int64_t>(random() % 3),
           "",
           number(9) / 8};
    }
    const double iou = number(5) / 4;
    const std::size_t most = random() % 70;
    CHECK(suppress(found, iou, most) == brute_force(found, iou, most));
    kept += suppress(found, .5, 1000).size();
    drawn += found.size();
  }
  CHECK(kept < drawn);
  CHECK(kept > drawn / 4);
  const Detection box{{0, 0, 2, 1}, 0, "", .5}, half{{0, 0, 1, 1}, 0, "", .5};
  CHECK(suppress(std::vector{box, half}, .5, 9) == std::vector<std::size_t>{0, 1});  // not more than 0.5
  CHECK(suppress(std::vector{box, half}, .49, 9) == std::vector<std::size_t>{0});
}

TEST_CASE("detector/labels are counted where the outputs have a score for each class") {
  const auto file = std::filesystem::temp_directory_path() / ("lenslet-detector-" + std::to_string(getpid()) + ".txt");
  std::ofstream(file) << "cat\ndog\n";
  const Tensor rows = Tensor::of<float>({1, 1, 8}, {10, 10, 4, 6, 1, .1f, .2f, .9f});
  const Card three = card_of({{"form", "yolov5"}});
  CHECK_ERROR(Detector(net_of({{"y", rows}}), three, file, test::on_cpu()), invalid_argument, "2 lines for 3 classes");
  Detector two(net_of({{"y", rows}}), card_of({{"form", "yolov5"}}, "y", 1), file, test::on_cpu());
  check_found(two.detect(photo()), {{{16, 14, 24, 26}, 1, "dog", .9}});
  // A class without a name.
  const Tensor end = Tensor::of<float>({1, 2, 6}, {1, 1, 9, 9, .9f, 0, 1, 1, 9, 9, .8f, 7});
  Detector any(net_of({{"y", end}}), card_of({{"form", "end_to_end"}}), file, test::on_cpu());
  check_found(any.detect(photo()), {{{2, 2, 18, 18}, 0, "cat", .9}, {{2, 2, 18, 18}, 7, "", .8}});
  std::filesystem::remove(file);
}

TEST_CASE("detector/outputs that are not as the card says are refused by name") {
  const auto refused = [&](const Tables& tables, const Card& card, const char* text) {
    CHECK_ERROR(detector_of(tables, card), unsupported, text);
  };
  const auto floats = [](Shape shape) { return Tensor(DType::f32, shape); };
  const nlohmann::json apart{{"form", "boxes_scores"}, {"boxes", "b"}};
  refused({{"y", floats({1, 4, 9})}}, card_of({{"form", "yolov8"}}),
          "the output y [1,4,9] is not as the card's output.boxes");
  refused({{"y", floats({2, 9, 9})}}, card_of({{"form", "yolov8"}}), "wanted [1,4+classes,N]");
  refused({{"y", floats({1, 9, 5})}}, card_of({{"form", "yolov5"}}), "wanted [1,N,5+classes]");
  refused({{"y", floats({1, 9, 7})}}, card_of({{"form", "end_to_end"}}), "wanted [1,N,6]");
  refused({{"y", floats({1, 9, 6})}}, card_of({{"form", "yolov5"}}, "y", 1), "more classes than output.class_offset");
  refused({{"b", floats({1, 9, 5})}, {"s", floats({1, 9, 2})}}, card_of(apart, "s"), "the output b [1,9,5]");
  refused({{"b", floats({1, 9, 4})}, {"s", floats({1, 8, 2})}}, card_of(apart, "s"), "the output s [1,8,2]");
  refused({{"b", floats({1, 9, 4})}, {"s", floats({9})}}, card_of(apart, "s"), "the output s [9]");
  const nlohmann::json labelled{{"form", "boxes_labels_scores"}, {"boxes", "b"}, {"labels", "l"}};
  refused({{"b", floats({9, 4})}, {"s", floats({9})}, {"l", floats({8})}}, card_of(labelled, "s"), "the output l [8]");
  refused({{"y", Tensor(DType::i64, {1, 9, 6})}}, card_of({{"form", "end_to_end"}}), "the output y is int64");
  CHECK_ERROR(detector_of({{"b", floats({1, 9, 4})}}, card_of(apart, "s")), invalid_argument, "output.name is 's'");
  CHECK_ERROR(detector_of({{"s", floats({1, 9, 4})}}, card_of(apart, "s")), invalid_argument,
              "output.boxes.boxes is 'b'");
  Card none = card_of(apart, "s");
  none.boxes.reset();
  CHECK_ERROR(detector_of({{"s", floats({1, 9, 4})}}, none), invalid_argument, "the card has no output.boxes");
}

}  // namespace
}  // namespace lenslet
