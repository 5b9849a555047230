#include "tools/verbs/check_rows.h"

#include <doctest/doctest.h>

#include <cmath>

using namespace lenslet;

TEST_CASE("check_rows/what_leaves_the_range_of_float16") {
  LayerCheck small, half;
  half.name = "twice";
  half.beyond_range = 2;
  half.largest = 8e4;
  const LayerCheck layers[] = {small, half, half};
  CHECK(tool::range_advice(layers).starts_with("2 of them leave the range of float16, first twice (up to 8e+04)"));
  CHECK(tool::range_advice(std::span(layers).first(1)).empty());
  half.error = INFINITY;
  CHECK(tool::to_json(half).dump() ==
        R"({"beyond_range":2,"error":"infinite","name":"twice","op":"","passed":false,"tolerance":0.0})");
}
