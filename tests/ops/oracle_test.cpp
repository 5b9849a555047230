// References on inputs so large that work for each pair of elements would take minutes; the results are known.

#include "oracle/oracle.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/larger_error.h"

namespace lenslet::oracle {
namespace {

using Ints = std::vector<std::int64_t>;

constexpr std::int64_t many = 300'000;

Array array(Shape shape, std::vector<double> values, DType dtype = DType::f32) {
  return {std::move(shape), std::move(values), dtype};
}

std::vector<double> counted(std::int64_t count) {
  std::vector<double> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), 0.0);
  return values;
}

/// 0 to many - 1 in random order.
std::vector<double> shuffled(unsigned seed) {
  std::vector<double> values = counted(many);
  std::shuffle(values.begin(), values.end(), std::mt19937(seed));
  return values;
}

Array run_one(const char* op, const AttributeList& attributes, const std::vector<Array>& inputs) {
  return run(op, attributes, inputs).value().at(0);
}

/// x + 1000 y of a pixel, which linear sampling reproduces at any position.
Array plane(std::int64_t height, std::int64_t width) {
  Array x = array({1, 1, height, width}, {});
  for (std::int64_t i = 0; i < height * width; ++i) x.values.push_back(double(i % width) + 1000.0 * double(i / width));
  return x;
}

}  // namespace

TEST_CASE("oracle/large/grid_sample") {
  constexpr std::int64_t height = 400, width = 600;
  std::mt19937 random(1);
  std::uniform_real_distribution<double> place(-0.99, 0.99);
  Array grid = array({1, height, width, 2}, {});
  for (std::int64_t i = 0; i < 2 * height * width; ++i) grid.values.push_back(place(random));
  const Array y = run_one("GridSample", {{"align_corners", std::int64_t{1}}}, {plane(height, width), grid});
  double worst = 0;
  for (std::size_t i = 0; i < y.values.size(); ++i) {
    const double column = (grid.values[2 * i] + 1) / 2 * (width - 1),
                 row = (grid.values[2 * i + 1] + 1) / 2 * (height - 1);
    worst = test::larger_error(worst, std::abs(y.values[i] - column - 1000 * row));
  }
  CHECK(worst < 1e-6);
  CHECK(*std::ranges::max_element(y.scale) < 1e9);
}

TEST_CASE("oracle/large/roi_align") {
  constexpr std::int64_t height = 400, width = 600, boxes = 2000;
  std::mt19937 random(2);
  Array box = array({boxes, 4}, {}), images = array({boxes}, std::vector<double>(boxes), DType::i64);
  for (std::int64_t i = 0; i < boxes; ++i) {
    const double left = double(random() % 500), top = double(random() % 300);
    for (const double corner : {left, top, left + 70, top + 35}) box.values.push_back(corner);
  }
  const AttributeList attributes{{"output_height", std::int64_t{7}}, {"output_width", std::int64_t{7}}};
  const Array y = run_one("RoiAlign", attributes, {plane(height, width), box, images});
  double worst = 0;
  for (std::size_t i = 0; i < y.values.size(); ++i) {
    const std::size_t of = i / 49, row = i / 7 % 7, column = i % 7;
    const double x = box.values[4 * of] - 0.5 + 10 * (double(column) + 0.5),
                 down = box.values[4 * of + 1] - 0.5 + 5 * (double(row) + 0.5);
    worst = test::larger_error(worst, std::abs(y.values[i] - x - 1000 * down));
  }
  CHECK(worst < 1e-6);
}

TEST_CASE("oracle/large/resize") {
  const Array y = run_one("Resize", {{"mode", std::string("linear")}, {"axes", Ints{1}}},
                          {array({1, many}, counted(many)),
                           {{}, {}, DType::f32, false},
                           {{}, {}, DType::f32, false},
                           array({1}, {2.0 * many}, DType::i64)});
  REQUIRE(y.values.size() == 2 * many);
  for (std::size_t i = 1; i + 1 < y.values.size(); ++i)
    if (!(std::abs(y.values[i] - (double(i) / 2 - 0.25)) <= 1e-6)) FAIL("element " << i << " is " << y.values[i]);
}

TEST_CASE("oracle/large/gather_and_pad_and_concat") {
  const std::vector<double> order = shuffled(3);
  const Array y = run_one("Gather", {}, {array({many}, counted(many)), array({many}, order, DType::i64)});
  CHECK(y.values == order);
  const Array padded = run_one("Pad", {{"mode", std::string("wrap")}},
                               {array({many}, order), array({2}, {double(many), double(many)}, DType::i64)});
  REQUIRE(padded.values.size() == 3 * many);
  for (std::size_t i = 0; i < padded.values.size(); ++i)
    if (padded.values[i] != order[i % order.size()]) FAIL("element " << i);
  std::vector<Array> parts;
  for (const double value : order) parts.push_back(array({1}, {value}));
  CHECK(run_one("Concat", {}, parts).values == order);
}

TEST_CASE("oracle/large/top_k_and_unique") {
  const std::vector<double> order = shuffled(4);
  const std::vector<Array> best = run("TopK", {{"axis", std::int64_t{0}}},
                                      std::vector<Array>{array({many}, order), array({1}, {double(many)}, DType::i64)})
                                      .value();
  for (std::size_t i = 0; i < order.size(); ++i)
    if (best[0].values[i] != double(order.size() - 1 - i) ||
        order[static_cast<std::size_t>(best[1].values[i])] != best[0].values[i])
      FAIL("element " << i);
  std::vector<double> twice = order;
  twice.insert(twice.end(), order.begin(), order.end());
  for (const std::int64_t sorted : {0, 1}) {
    const std::vector<Array> y =
        run("Unique", {{"sorted", sorted}}, std::vector<Array>{array({2 * many}, twice)}).value();
    CHECK(y[0].values == (sorted != 0 ? counted(many) : order));
    CHECK(std::ranges::all_of(y[3].values, [](double count) { return count == 2; }));
    for (std::size_t i = 0; i < twice.size(); ++i)
      if (y[0].values[static_cast<std::size_t>(y[2].values[i])] != twice[i]) FAIL("element " << i);
    for (std::size_t k = 0; k < y[0].values.size(); ++k) {
      const auto first = static_cast<std::size_t>(y[1].values[k]);
      if (first >= order.size() || twice[first] != y[0].values[k]) FAIL("first of " << k);
    }
  }
}

}  // namespace lenslet::oracle
