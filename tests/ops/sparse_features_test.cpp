// The sparse operators that only move features or take maxima: cases compared with the oracle, and errors of runs.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <limits>
#include <random>

#include "tests/ops/op_harness.h"
#include "tests/ops/sparse_sites.h"

namespace lenslet::test {
namespace {

/// A pool of stride 2 over random sites.
OpCase pool_case(const Ints& size, const Ints& kernel, std::int64_t channels, double fill) {
  std::mt19937 random(9);
  const std::vector<Site> sites = draw_sites(random, 2, size, fill);
  const auto bound = static_cast<std::int64_t>(sites.size()) + 3;
  const std::vector<Tensor> book = run_op(
      rulebook_case("regular", size, kernel, indices_of(sites, bound, size.size()), 2, strides(Ints(size.size(), 2))));
  return {.op = "SparseMaxPool",
          .domain = "lenslet",
          .attributes = {{"kernel_shape", kernel}},
          .inputs = {features_of(sites.size(), bound, channels, 9), book[0], book[1]}};
}

}  // namespace

TEST_CASE("sparse/max_pool") {
  for (const auto& [size, kernel] : std::vector<std::pair<Ints, Ints>>{{{5, 6, 7}, {2, 2, 2}}, {{30, 40}, {3, 3}}}) {
    OpCase c = pool_case(size, kernel, 5, 0.4);
    check_op(c);
    c.inputs[0].values<float>()[7] = std::numeric_limits<float>::quiet_NaN();
    c.inputs[0].values<float>()[1] = -std::numeric_limits<float>::infinity();
    check_op(c);
    c.attributes[0].second = Ints{3, 3, 3, 3};
    CHECK(infer_error(c) == ErrorKind::invalid_model);
  }
}

TEST_CASE("sparse/dense") {
  std::mt19937 random(11);
  for (const Ints& size : {Ints{4, 5, 6}, Ints{7, 3}})
    for (const double fill : {0.0, 0.4, 1.0}) {
      const std::vector<Site> sites = draw_sites(random, 3, size, fill, 1);
      const auto bound = static_cast<std::int64_t>(sites.size()) + 2;
      const OpCase dense{.op = "SparseToDense",
                         .domain = "lenslet",
                         .attributes = {{"spatial_shape", size}, {"images", std::int64_t{3}}},
                         .inputs = {indices_of(sites, bound, size.size()), features_of(sites.size(), bound, 3, 4)}};
      check_op(dense);
      OpCase sparse{.op = "SparseFromDense", .domain = "lenslet", .inputs = run_op(dense), .outputs = 2};
      check_op(sparse);
      sparse.attributes = {{"max_sites", bound}};
      check_op(sparse);
      // There and back.
      const std::vector<Tensor> back = run_op(sparse);
      CHECK(values(back[0]) == values(dense.inputs[0]));
      const auto kept = static_cast<std::ptrdiff_t>(sites.size()) * 3;
      CHECK(std::equal(back[1].values<float>().begin(), back[1].values<float>().begin() + kept,
                       dense.inputs[1].values<float>().begin()));
      if (sites.empty()) continue;
      sparse.attributes = {{"max_sites", std::int64_t{1}}};
      CHECK(contains(run_error(sparse), fmt::format("{} sites, more than the bound of 1", sites.size()).c_str()));
      OpCase bad = dense;
      bad.attributes[1].second = std::int64_t{2};
      CHECK(contains(run_error(bad), "lies outside"));
      bad.inputs[1] = Tensor(DType::f32, {1, 3});
      CHECK(infer_error(bad) == ErrorKind::invalid_model);
    }
  check_op({.op = "SparseFromDense", .domain = "lenslet", .inputs = {Tensor(DType::f32, {0, 2, 3, 3})}, .outputs = 2});
  check_op({.op = "SparseFromDense", .domain = "lenslet", .inputs = {Tensor(DType::f32, {2, 0, 3, 3})}, .outputs = 2});
}

namespace {

/// Sites of 2 images of 6x300x70, shuffled, followed by `more` rows without a site.
OpCase unsorted(std::int64_t more, bool sorted = false) {
  std::mt19937 random(13);
  const Ints size{6, 300, 70};
  std::vector<Site> sites = draw_sites(random, 2, size, 0.01);
  const auto count = static_cast<std::int64_t>(sites.size());
  if (!sorted) std::shuffle(sites.begin(), sites.end(), random);
  return {.op = "SparseSort",
          .domain = "lenslet",
          .attributes = {{"spatial_shape", size}, {"images", std::int64_t{2}}},
          .inputs = {indices_of(sites, count + more, 3), random_f32({count + more, 3}, 5)},
          .outputs = 2};
}

}  // namespace

TEST_CASE("sparse/sort/sites_in_order_and_out_of_it_come_sorted") {
  check_op(unsorted(2, true));
  check_op(unsorted(0));
  OpCase c = unsorted(0);
  c.attributes.emplace_back("max_sites", c.inputs[0].shape()[0] + 4);
  check_op(c);
}

TEST_CASE("sparse/sort/a_row_among_them_that_holds_no_site_is_left_out") {
  OpCase c = unsorted(0);
  c.inputs[0].values<std::int32_t>()[4] = -1;
  check_op(c);
}

TEST_CASE("sparse/sort/sites_beyond_the_bound_are_told") {
  OpCase c = unsorted(0);
  const std::int64_t count = c.inputs[0].shape()[0];
  c.attributes.emplace_back("max_sites", count - 1);
  CHECK(contains(run_error(c), fmt::format("{} sites, more than the bound of {}", count, count - 1)));
}

TEST_CASE("sparse/sort/a_site_that_stands_twice_is_told_with_both_rows") {
  OpCase c = unsorted(0);
  const auto rows = c.inputs[0].values<std::int32_t>().begin();
  std::copy_n(rows + 40, 4, rows + 4);
  CHECK(contains(run_error(c), "site 10 "));
  CHECK(contains(run_error(c), "occurs twice: site 1 is the same"));
}

TEST_CASE("sparse/sort/a_site_outside_the_grid_is_told") {
  OpCase c = unsorted(0);
  const auto site = c.inputs[0].values<std::int32_t>().subspan(4, 4);
  site[1] = 6;
  CHECK(contains(run_error(c),
                 fmt::format("site 1 ({}, 6, {}, {}) lies outside 2 images of 6x300x70", site[0], site[2], site[3])));
}

TEST_CASE("sparse/max_pool/many_channels") {
  for (const std::int64_t channels : {1, 33, 70}) check_op(pool_case({9, 40, 30}, {3, 2, 3}, channels, 0.2));
}

// A rulebook may come from a file: whatever it contains, nothing outside x and y is accessed.
TEST_CASE("sparse/max_pool/rulebooks_that_lie") {
  const OpCase good = pool_case({6, 6}, {3, 3}, 2, 0.5);
  const auto pairs = static_cast<std::size_t>(12);
  const auto error = [&](std::size_t at, std::int32_t value) {
    OpCase c = good;
    c.inputs[1] = good.inputs[1].clone();
    c.inputs[1].values<std::int32_t>()[at] = value;
    return run_error(c);
  };
  CHECK(contains(error(0, 1 << 20), "the rulebook leads from 1048576 sites to"));
  CHECK(contains(error(0, -1), "the rulebook leads from"));
  CHECK(contains(error(1, 1 << 20), "the rulebook leads from"));
  CHECK(contains(error(2, 1), "the rulebook is none of 9 taps"));
  CHECK(contains(error(5, -7), "the rulebook is none of 9 taps"));
  CHECK(contains(error(11, 1 << 30), "the rulebook is none of 9 taps"));
  CHECK(contains(error(pairs, 1 << 20), "of sites that are not"));
  CHECK(contains(error(pairs, -1), "of sites that are not"));
}

TEST_CASE("sparse/sort/a_scan_comes_sorted") {
  std::vector<Site> sites = scan_sites(30'000, 2, 6);
  std::mt19937 random(2);
  std::shuffle(sites.begin(), sites.end(), random);
  const auto count = static_cast<std::int64_t>(sites.size());
  for (const std::int64_t images : {std::int64_t{2}, std::int64_t{1} << 30})
    check_op({.op = "SparseSort",
              .domain = "lenslet",
              .attributes = {{"spatial_shape", scan_grid}, {"images", images}, {"max_sites", count + 7}},
              .inputs = {indices_of(sites, count + 90, 3), random_f32({count + 90, 5}, 5)},
              .outputs = 2});
}

TEST_CASE("sparse/dense/many_channels") {
  std::mt19937 random(4);
  const Ints size{30, 21};
  const std::vector<Site> sites = draw_sites(random, 2, size, 0.3);
  const auto bound = static_cast<std::int64_t>(sites.size());
  const OpCase dense{.op = "SparseToDense",
                     .domain = "lenslet",
                     .attributes = {{"spatial_shape", size}, {"images", std::int64_t{2}}},
                     .inputs = {indices_of(sites, bound, 2), random_f32({bound, 70}, 4)}};
  check_op(dense);
  check_op({.op = "SparseFromDense", .domain = "lenslet", .inputs = run_op(dense), .outputs = 2});
}

}  // namespace lenslet::test
