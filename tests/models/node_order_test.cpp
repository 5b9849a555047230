#include "models/node_order.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

using lenslet::NodeOrder;
using lenslet::order_nodes;
using Lists = std::vector<std::vector<std::size_t>>;

TEST_CASE("node_order/keeps_the_file_s_order_where_it_can") {
  CHECK(order_nodes({}).order.empty());
  CHECK(order_nodes({{}, {0}, {0, 1}}).order == std::vector<std::size_t>{0, 1, 2});
  CHECK(order_nodes({{2}, {0}, {}}).order == std::vector<std::size_t>{2, 0, 1});
  CHECK(order_nodes({{}, {}, {}}).order == std::vector<std::size_t>{0, 1, 2});
  CHECK(order_nodes({{1, 1}, {}}).order == std::vector<std::size_t>{1, 0});
}

TEST_CASE("node_order/shuffled_graphs") {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const std::size_t count = 1 + random() % 40;
    std::vector<std::size_t> place(count);
    for (std::size_t i = 0; i < count; ++i) place[i] = i;
    std::shuffle(place.begin(), place.end(), random);
    Lists depends_on(count);
    for (std::size_t i = 1; i < count; ++i)
      for (unsigned edge = 0; edge < random() % 4; ++edge) depends_on[place[i]].push_back(place[random() % i]);
    const NodeOrder found = order_nodes(depends_on);
    REQUIRE(found.order.size() == count);
    CHECK(found.cycle.empty());
    std::vector<bool> done(count, false);
    for (const std::size_t n : found.order) {
      for (const std::size_t other : depends_on[n]) CHECK(done[other]);
      CHECK(!done[n]);
      done[n] = true;
    }
  }
}

TEST_CASE("node_order/cycles") {
  CHECK(order_nodes({{0}}).cycle == std::vector<std::size_t>{0});
  // 0 -> 1 -> 2 -> 1 is the cycle; 3 follows it and 4 is free: neither belongs to it.
  const NodeOrder found = order_nodes({{}, {0, 2}, {1}, {2}, {}});
  CHECK(found.order.empty());
  REQUIRE(found.cycle.size() == 2);
  CHECK(std::is_permutation(found.cycle.begin(), found.cycle.end(), std::vector<std::size_t>{1, 2}.begin()));
  // 0, where the search begins, follows it.
  CHECK(order_nodes({{1}, {2}, {1}}).cycle == std::vector<std::size_t>{2, 1});
  // In the order of the data: each reads from the one before.
  const NodeOrder ring = order_nodes({{2}, {0}, {1}});
  REQUIRE(ring.cycle.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) CHECK(ring.cycle[(i + 1) % 3] == (ring.cycle[i] + 1) % 3);
}
