// The operators on sparse values: cases against the oracle, results by hand, and what is refused.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <limits>
#include <random>

#include "base/thread_pool.h"
#include "ops/core/kernel.h"
#include "ops/core/sum_tolerance.h"
#include "oracle/oracle.h"
#include "tests/ops/op_harness.h"
#include "tests/ops/op_runner.h"
#include "tests/ops/sparse_sites.h"

namespace lenslet::test {
namespace {

using Attributes = AttributeList;

OpCase rulebook_case(const char* kind, const Ints& size, const Ints& kernel, Tensor indices, std::int64_t images = 1,
                     const Attributes& more = {}) {
  OpCase c{.op = "SparseRulebook",
           .domain = "lenslet",
           .attributes = {{"kind", std::string(kind)},
                          {"spatial_shape", size},
                          {"images", images},
                          {"kernel_shape", kernel}},
           .inputs = {std::move(indices)},
           .outputs = std::string_view(kind) == "submanifold" ? 1U : 2U};
  c.attributes.insert(c.attributes.end(), more.begin(), more.end());
  return c;
}

Attributes strides(const Ints& values) { return {{"strides", values}}; }

std::vector<std::int32_t> values(const Tensor& tensor) {
  const auto span = tensor.values<std::int32_t>();
  return {span.begin(), span.end()};
}

/// The message of the error that running a case ends with.
std::string run_error(const OpCase& c) {
  try {
    (void)run_op(c);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::invalid_argument);
    return error.what();
  }
  FAIL("ran: " << c.op);
  return {};
}

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("sparse/rulebook/cases") {
  std::mt19937 random(7);
  const auto check = [&](const char* kind, const Ints& size, const Ints& kernel, double fill,
                         const Attributes& more = {}, std::int64_t images = 1, std::int64_t empty = -1) {
    const std::vector<Site> sites = draw_sites(random, images, size, fill, empty);
    const auto count = static_cast<std::int64_t>(sites.size());
    for (const std::int64_t bound : {count, count + 5})
      check_op(rulebook_case(kind, size, kernel, indices_of(sites, bound, size.size()), images, more));
  };
  check("submanifold", {5, 6, 7}, {3, 3, 3}, 0.3);
  check("submanifold", {5, 6, 7}, {1, 1, 1}, 0.3);
  check("submanifold", {4, 9, 9}, {5, 3, 1}, 1.0, {{"dilations", Ints{1, 2, 3}}});
  check("submanifold", {9, 8}, {3, 5}, 0.4, {{"dilations", Ints{3, 2}}}, 3, 1);
  check("submanifold", {3, 3, 3}, {3, 3, 3}, 0.0);
  check("regular", {5, 6, 7}, {3, 3, 3}, 0.2, {{"strides", Ints{2, 2, 2}}, {"pads", Ints{1, 1, 1, 1, 1, 1}}});
  check("regular", {5, 6, 7}, {3, 1, 1}, 1.0, {{"strides", Ints{2, 1, 1}}});
  check("regular", {8, 9}, {2, 4}, 0.3, {{"strides", Ints{3, 1}}, {"dilations", Ints{2, 2}}}, 2, 0);
  check("regular", {4, 4, 4}, {5, 5, 5}, 0.5, {{"pads", Ints{2, 0, 4, 2, 1, 4}}});
  check("regular", {6, 6}, {3, 3}, 0.0);
  check("transposed", {3, 4, 5}, {3, 3, 3}, 0.3,
        {{"strides", Ints{2, 2, 1}}, {"pads", Ints{1, 0, 1, 0, 1, 1}}, {"output_padding", Ints{1, 0, 0}}});
  check("transposed", {5, 4}, {2, 2}, 0.6, strides({2, 2}), 2);
}

// A submanifold of four sites in a row, with one that stands apart: pairs of the taps before the centre, then -1.
TEST_CASE("sparse/rulebook/by_hand") {
  const Tensor indices = indices_of({{0, 1, 0}, {0, 1, 1}, {0, 1, 3}, {0, 2, 1}}, 5, 2);
  const std::vector<Tensor> book =
      run_op(rulebook_case("submanifold", {4, 4}, {3, 3}, indices, 1, {{"max_pairs", std::int64_t{4}}}));
  // Taps (-1,-1), (-1,0), (-1,1), (0,-1): site 3 has 0 above and left of it, and 1 above; site 1 has 0 on its left.
  CHECK(values(book[0]) == std::vector<std::int32_t>{4, 4, 0, 1, 2, 2, 3, 0, 1, 0, -1, 3, 3, 1, -1});
  const std::vector<Tensor> strided =
      run_op(rulebook_case("regular", {4, 4}, {2, 2}, indices, 1,
                           {{"strides", Ints{2, 2}}, {"max_sites", std::int64_t{4}}, {"max_pairs", std::int64_t{5}}}));
  CHECK(values(strided[1]) == std::vector<std::int32_t>{0, 0, 0, 0, 0, 1, 0, 1, 0, -1, -1, -1});
  CHECK(values(strided[0]) == std::vector<std::int32_t>{4, 3, 0, 0, 1, 2, 4, 3, 0, 1, 2, -1, 2, 0, 0, 1, -1});
}

// Windows of the merge that lie far apart, and more of them than one pass covers.
TEST_CASE("sparse/rulebook/far_apart") {
  const std::int64_t far = std::int64_t{1} << 20;
  const std::vector<Site> sites{{0, 0, 0, 0}, {0, 0, far - 1, far - 1}, {0, 7, 5, far - 1}, {1, 7, far - 1, 0}};
  check_op(rulebook_case("regular", {8, far, far}, {3, 3, 3}, indices_of(sites, 4, 3), 2,
                         {{"strides", Ints{2, 2, 2}}, {"pads", Ints{1, 1, 1, 1, 1, 1}}}));
  check_op(rulebook_case("submanifold", {8, far, far}, {3, 3, 3}, indices_of(sites, 6, 3), 2));
  std::mt19937 random(3);
  const std::vector<Site> wide = draw_sites(random, 1, {3, 300, 300}, 0.05);
  const auto count = static_cast<std::int64_t>(wide.size());
  check_op(rulebook_case("submanifold", {3, 300, 300}, {3, 3, 3}, indices_of(wide, count, 3)));
  check_op(rulebook_case("regular", {3, 300, 300}, {3, 3, 3}, indices_of(wide, count, 3), 1, strides({1, 2, 2})));
}

TEST_CASE("sparse/rulebook/errors_of_the_run") {
  const auto error = [](const std::vector<Site>& sites, const Attributes& more = {}, const char* kind = "submanifold") {
    return run_error(
        rulebook_case(kind, {4, 4}, {3, 3}, indices_of(sites, static_cast<std::int64_t>(sites.size()), 2), 2, more));
  };
  CHECK(contains(error({{0, 1, 1}, {0, 1, 1}}), "site 1 (0, 1, 1) stands twice"));
  CHECK(contains(error({{0, 1, 2}, {0, 1, 1}}), "site 1 (0, 1, 1) comes after a larger one"));
  CHECK(contains(error({{0, 1, 4}}), "site 0 (0, 1, 4) lies outside 2 images of 4x4"));
  CHECK(contains(error({{0, -1, 0}}), "lies outside"));
  CHECK(contains(error({{2, 0, 0}}), "lies outside"));
  CHECK(contains(error({{0, 0, 0}, {-1, 0, 0}, {1, 0, 0}}), "site 2 (1, 0, 0) comes after row 1, which holds no site"));
  CHECK(contains(error({{0, 0, 0}, {0, 0, 1}, {0, 0, 2}}, {{"max_pairs", std::int64_t{1}}}),
                 "2 pairs, more than the bound of 1 (max_pairs)"));
  const Attributes sites3{{"max_sites", std::int64_t{3}}, {"pads", Ints{1, 1, 1, 1}}};
  CHECK(contains(error({{0, 0, 0}}, sites3, "regular"), "4 output sites, more than the bound of 3 (max_sites)"));
  CHECK(contains(error({{0, 1, 1}, {0, 1, 1}}, {}, "regular"), "stands twice"));
}

TEST_CASE("sparse/rulebook/refusals") {
  const Tensor indices = indices_of({{0, 1, 1}}, 3, 2);
  const auto error = [&](const char* kind, const Ints& size, const Ints& kernel, const Attributes& more = {},
                         std::int64_t images = 1) {
    return infer_error(rulebook_case(kind, size, kernel, indices, images, more));
  };
  constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max();
  CHECK(error("subm", {4, 4}, {3, 3}) == ErrorKind::invalid_model);
  CHECK(error("submanifold", {4, 4}, {2, 3}) == ErrorKind::invalid_model);
  CHECK(error("submanifold", {4, 4}, {3, 3}, strides({1, 1})) == ErrorKind::unsupported);
  CHECK(error("submanifold", {4, 4}, {3, 3, 3}) == ErrorKind::invalid_model);
  CHECK(error("submanifold", {4, 4, 4}, {3, 3, 3}) == ErrorKind::invalid_model);  // indices are of 2-D sites
  CHECK(error("submanifold", {4}, {3}) == ErrorKind::unsupported);
  CHECK(error("regular", {4, 4}, {7, 3}) == ErrorKind::invalid_model);
  CHECK(error("regular", {4, 4}, {0, 3}) == ErrorKind::invalid_model);
  CHECK(error("regular", {4, 4}, {5, 5}) == ErrorKind::invalid_model);  // no window fits
  CHECK(error("regular", {4, huge}, {3, 3}) == ErrorKind::invalid_model);
  CHECK(error("regular", {1 << 30, 1 << 30}, {3, 3}, {}, huge) == ErrorKind::invalid_model);
  CHECK(error("regular", {4, 4}, {3, 3}, {}, 0) == ErrorKind::invalid_model);
  CHECK(error("regular", {4, 4}, {3, 3}, strides({0, 1})) == ErrorKind::invalid_model);
  CHECK(error("regular", {4, 4}, {3, 3}, strides({1, huge})) == ErrorKind::invalid_model);
  CHECK(error("regular", {4, 4}, {3, 3}, {{"pads", Ints{1, 1}}}) == ErrorKind::invalid_model);
  CHECK(error("regular", {4, 4}, {3, 3}, {{"pads", Ints{1, 1, -1, 1}}}) == ErrorKind::invalid_model);
  CHECK(error("regular", {4, 4}, {3, 3}, {{"max_sites", std::int64_t{-1}}}) == ErrorKind::invalid_model);
  CHECK(error("regular", {4, 4}, {3, 3}, {{"max_sites", huge}}) == ErrorKind::invalid_model);
  CHECK(error("transposed", {4, 4}, {1, 1}, {{"pads", Ints{2, 2, 2, 2}}}) == ErrorKind::invalid_model);
  CHECK(error("submanifold", {4, 4}, {3, 3}, {{"group", std::int64_t{1}}}) == ErrorKind::unsupported);
  OpCase many = rulebook_case("regular", {1 << 14, 1 << 14}, {5, 5}, Tensor(DType::i32, {1 << 26, 3}));
  CHECK(infer_error(many) == ErrorKind::unsupported);
  many.inputs[0] = Tensor(DType::i64, {3, 3});
  CHECK(infer_error(many) == ErrorKind::unsupported);
}

namespace {

/// A convolution over drawn sites; `kind` as SparseConv has it.
OpCase conv_case(const char* kind, const Ints& size, const Ints& kernel, std::int64_t channels, std::int64_t filters,
                 double fill, unsigned seed, const Attributes& more = {}) {
  std::mt19937 random(seed);
  const std::vector<Site> sites = draw_sites(random, 2, size, fill);
  const auto bound = static_cast<std::int64_t>(sites.size()) + 3;
  const Tensor indices = indices_of(sites, bound, size.size());
  const bool submanifold = std::string_view(kind) == "submanifold", inverse = std::string_view(kind) == "inverse";
  const std::vector<Tensor> book =
      run_op(rulebook_case(submanifold ? "submanifold" : "regular", size, kernel, indices, 2, more));
  std::vector<std::int64_t> w{filters, channels};
  w.insert(w.end(), kernel.begin(), kernel.end());
  const std::size_t inputs = static_cast<std::size_t>(book[0].values<std::int32_t>()[inverse ? 1 : 0]);
  const std::int64_t most_inputs = inverse ? book[1].shape()[0] : bound;
  return {.op = "SparseConv",
          .domain = "lenslet",
          .attributes = {{"kind", std::string(kind)}},
          .inputs = {features_of(inputs, most_inputs, channels, seed), book[0],
                     random_f32(Shape(std::span<const std::int64_t>(w)), seed + 1),
                     submanifold ? Tensor()
                     : inverse   ? indices
                                 : book[1],
                     random_f32({filters}, seed + 2)},
          .maybe_constant = {2, 4},
          .tolerance = sum_tolerance(channels * kernel[0] * kernel[1] * (kernel.size() == 3 ? kernel[2] : 1))};
}

}  // namespace

TEST_CASE("sparse/conv/cases") {
  unsigned seed = 1;
  for (const auto& [channels, filters] : std::vector<std::pair<int, int>>{{1, 1}, {4, 16}, {13, 7}, {16, 33}, {37, 24}})
    for (const char* const kind : {"submanifold", "regular", "inverse"}) {
      OpCase c = conv_case(kind, {4, 7, 6}, {3, 3, 3}, channels, filters, 0.3, seed += 3);
      check_op(c);
      c.inputs.pop_back();  // without a bias
      c.maybe_constant = {2};
      check_op(c);
    }
  check_op(conv_case("submanifold", {40, 60}, {5, 3}, 8, 8, 0.5, 77));  // several blocks
  check_op(conv_case("regular", {40, 60}, {2, 4}, 8, 8, 0.5, 78, strides({2, 2})));
  check_op(conv_case("inverse", {9, 9}, {3, 1}, 5, 40, 0.5, 79, strides({2, 1})));
  check_op(conv_case("submanifold", {3, 3, 3}, {3, 3, 3}, 4, 4, 0.0, 80));  // no sites
  check_op(conv_case("regular", {3, 3, 3}, {3, 3, 3}, 4, 4, 1.0, 81));      // all
}

TEST_CASE("sparse/conv/refusals") {
  const OpCase good = conv_case("regular", {4, 5}, {3, 3}, 3, 4, 0.5, 1);
  const auto error = [&](const auto& change) {
    OpCase c = good;
    change(c);
    return infer_error(c);
  };
  CHECK(error([](OpCase& c) { c.attributes[0].second = std::string("dense"); }) == ErrorKind::invalid_model);
  CHECK(error([](OpCase& c) { c.attributes.emplace_back("activation", std::string("relu")); }) ==
        ErrorKind::unsupported);
  CHECK(error([](OpCase& c) { c.inputs[0] = Tensor(DType::f32, {5, 4}); }) == ErrorKind::invalid_model);
  CHECK(error([](OpCase& c) { c.inputs[0] = Tensor(DType::f16, {5, 3}); }) == ErrorKind::unsupported);
  CHECK(error([](OpCase& c) { c.inputs[1] = Tensor(DType::i32, {11}); }) == ErrorKind::invalid_model);
  CHECK(error([](OpCase& c) { c.inputs[1] = Tensor(DType::i32, {13}); }) == ErrorKind::invalid_model);
  CHECK(error([](OpCase& c) { c.inputs[1] = Tensor(DType::i64, {12}); }) == ErrorKind::unsupported);
  CHECK(error([](OpCase& c) { c.inputs[2] = Tensor(DType::f32, {4, 3, 3, 7}); }) == ErrorKind::unsupported);
  CHECK(error([](OpCase& c) { c.inputs[2] = Tensor(DType::f32, {0, 3, 3, 3}); }) == ErrorKind::unsupported);
  CHECK(error([](OpCase& c) {
          c.inputs[0] = Tensor(DType::f32, {5, 0});
          c.inputs[2] = Tensor(DType::f32, {4, 0, 3, 3});
        }) == ErrorKind::unsupported);
  CHECK(error([](OpCase& c) { c.inputs[2] = Tensor(DType::f32, {4, 3, 3}); }) == ErrorKind::unsupported);
  CHECK(error([](OpCase& c) { c.inputs[3] = Tensor(); }) == ErrorKind::invalid_model);
  CHECK(error([](OpCase& c) { c.inputs[3] = Tensor(DType::i32, {5, 4}); }) == ErrorKind::invalid_model);
  CHECK(error([](OpCase& c) { c.inputs[4] = Tensor(DType::f32, {5}); }) == ErrorKind::invalid_model);
}

// A rulebook may come from a file: nothing outside x and y is touched, whatever it says.
TEST_CASE("sparse/conv/rulebooks_that_lie") {
  const OpCase good = conv_case("regular", {6, 6}, {3, 3}, 2, 2, 0.5, 5);
  const auto pairs = static_cast<std::size_t>(12);
  // A device finds out while it computes, and has one sentence for it.
  const bool on_device = op_runner().device() == DeviceKind::cuda;
  const auto says = [&](const std::string& text, const char* part) {
    return contains(text, on_device ? "the rulebook is none of 9 taps that leads from at most" : part);
  };
  const auto error = [&](std::size_t at, std::int32_t value) {
    OpCase c = good;
    c.inputs[1] = good.inputs[1].clone();
    c.inputs[1].values<std::int32_t>()[at] = value;
    c.constant = {2};
    const std::string fast = run_error(c);
    c.constant = {};  // the other kernel
    CHECK(run_error(c) == fast);
    return fast;
  };
  CHECK(says(error(0, 1 << 20), "the rulebook leads from"));
  CHECK(says(error(0, -1), "the rulebook leads from"));
  CHECK(says(error(1, 1 << 20), "the rulebook leads from"));
  CHECK(says(error(2, 1), "the rulebook is none of 9 taps"));
  CHECK(says(error(5, -7), "the rulebook is none of 9 taps"));
  CHECK(says(error(11, 1 << 30), "the rulebook is none of 9 taps"));
  CHECK(says(error(pairs, 1 << 20), "of sites that are not"));
  CHECK(says(error(pairs, -1), "of sites that are not"));
  OpCase pool{.op = "SparseMaxPool",
              .domain = "lenslet",
              .attributes = {{"kernel_shape", Ints{3, 3}}},
              .inputs = {good.inputs[0], good.inputs[1].clone(), good.inputs[3]}};
  pool.inputs[1].values<std::int32_t>()[pairs] = 1 << 20;
  CHECK(contains(run_error(pool), "of sites that are not"));
}

TEST_CASE("sparse/max_pool") {
  for (const auto& [size, kernel] : std::vector<std::pair<Ints, Ints>>{{{5, 6, 7}, {2, 2, 2}}, {{30, 40}, {3, 3}}}) {
    const OpCase conv = conv_case("regular", size, kernel, 5, 1, 0.4, 9, strides(Ints(size.size(), 2)));
    OpCase c{.op = "SparseMaxPool",
             .domain = "lenslet",
             .attributes = {{"kernel_shape", kernel}},
             .inputs = {conv.inputs[0].clone(), conv.inputs[1], conv.inputs[3]}};
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

TEST_CASE("sparse/sort") {
  std::mt19937 random(13);
  const Ints size{6, 300, 70};
  std::vector<Site> sites = draw_sites(random, 2, size, 0.01);
  const auto count = static_cast<std::int64_t>(sites.size());
  const auto sort_case = [&](std::int64_t more) {
    return OpCase{.op = "SparseSort",
                  .domain = "lenslet",
                  .attributes = {{"spatial_shape", size}, {"images", std::int64_t{2}}},
                  .inputs = {indices_of(sites, count + more, 3), random_f32({count + more, 3}, 5)},
                  .outputs = 2};
  };
  check_op(sort_case(2));  // sorted
  std::shuffle(sites.begin(), sites.end(), random);
  OpCase c = sort_case(0);
  check_op(c);
  c.attributes.emplace_back("max_sites", count + 4);
  check_op(c);
  c.attributes.back().second = count - 1;
  CHECK(contains(run_error(c), fmt::format("{} sites, more than the bound of {}", count, count - 1).c_str()));
  c = sort_case(0);
  c.inputs[0].values<std::int32_t>()[4] = -1;  // a row among them that holds none
  check_op(c);
  std::copy_n(c.inputs[0].values<std::int32_t>().begin() + 40, 4, c.inputs[0].values<std::int32_t>().begin() + 4);
  CHECK(contains(run_error(c), "site 10 "));
  CHECK(contains(run_error(c), "stands twice: it is site 1, too"));
  c.inputs[0].values<std::int32_t>()[5] = 6;
  CHECK(contains(run_error(c), "site 1 (1, 6") == (c.inputs[0].values<std::int32_t>()[4] == 1));
  CHECK(contains(run_error(c), "lies outside 2 images of 6x300x70"));
}

// What the fusion passes make of it: scales on the filters, a residual that y may be written over, an activation.
TEST_CASE("sparse/conv/epilogue") {
  for (const char* const kind : {"submanifold", "regular"})
    for (const char* const activation : {"relu", "silu", "clip"}) {
      OpCase c = conv_case(kind, {6, 7, 5}, {3, 3, 3}, 8, 19, 0.4, 21);
      std::vector<double> scale(19);
      for (std::size_t k = 0; k < scale.size(); ++k) scale[k] = 0.5 + static_cast<double>(k % 4);
      const auto rows = c.inputs[3].empty() ? c.inputs[0].shape()[0] : c.inputs[3].shape()[0];
      c.inputs.push_back(random_f32({rows, 19}, 99));
      c.constant = {2, 4};
      const std::shared_ptr<const Op> op = make_normalised_op("SparseConv",
                                                              {{"kind", std::string(kind)},
                                                               {"activation", std::string(activation)},
                                                               {"activation_alpha", -0.5},
                                                               {"activation_beta", 1.5},
                                                               {"weight_scale", scale}},
                                                              6);
      const std::vector<InputInfo> infos = infos_of(c.inputs, c.constant);
      const Problem problem(op, infos);
      std::vector<oracle::Array> arrays;
      for (const Tensor& input : c.inputs) arrays.push_back(oracle::from_tensor(input));
      const oracle::Array exact = oracle::run("SparseConv", op->attributes(), arrays).value()[0];
      int calls = 0;
      const OpRunner& runner = op_runner();
      for (const Kernel* kernel : kernels_of("SparseConv", runner.device()))
        for_each_call(runner, problem, *kernel, 3, [&](const Call& call) {
          ++calls;
          const Tensor y = run_between_guards(runner, call, c.inputs, call.str())[0];
          double worst = 0;
          for (std::size_t i = 0; i < exact.values.size(); ++i)
            worst = std::max(worst, std::abs(double{y.values<float>()[i]} - exact.values[i]));
          CHECK_MESSAGE(worst <= call.candidate.tolerance * oracle::rms(exact.values), call.str());
        });
      // Apart and over the residual: two kernels, three numbers of threads; on a device no threads.
      CHECK(calls == (runner.device() == DeviceKind::cpu ? 12 : 4));
    }
}

}  // namespace lenslet::test
