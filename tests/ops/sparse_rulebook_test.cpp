// SparseRulebook: cases compared with the oracle, results by hand, refusals, and scans of many blocks, for which every
// run on a device gives the CPU's bits.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstring>
#include <limits>
#include <random>

#include "ops/core/kernel.h"
#include "oracle/oracle.h"
#include "tests/ops/op_harness.h"
#include "tests/ops/op_runner.h"
#include "tests/ops/sparse_sites.h"
#include "tests/random_seed.h"

namespace lenslet::test {

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

// A submanifold of four sites in a row and a separate one: pairs of the taps before the centre, then -1.
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

// Merge windows that are far apart, and more of them than one pass covers.
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

TEST_CASE("sparse/grid/cells_are_counted_by_62_bits") {
  const auto says = [](const char* op, std::size_t inputs, const Attributes& attributes) {
    return refusal_of(ErrorKind::invalid_model, [&] { lenslet::make_op(op, "lenslet", attributes, inputs, 1, 1); });
  };
  constexpr std::int64_t large = 1 << 30;
  const Attributes square{{"spatial_shape", Ints{large, large}}, {"images", std::int64_t{3}}},
      more{{"spatial_shape", Ints{large, large}}, {"images", std::int64_t{4}}};
  CHECK(says("SparseToDense", 2, square) == "");
  CHECK(contains(says("SparseToDense", 2, more), "have more cells than 62 bits can count"));
  // With one more cell along any axis there would be 2^62.
  const auto taken = [&](const Ints& shape, std::int64_t images) {
    return says("SparseToDense", 2, {{"spatial_shape", shape}, {"images", images}}) == "";
  };
  CHECK((taken({large - 1, large}, 4) && taken({large, large - 1}, 4) && taken({3, large, large}, 1)));
  // A rulebook's windows may reach 2^18 cells beyond, also along the depth: (2^18 + 1) * (2^22 - a) * 2^22.
  constexpr std::int64_t side = (1 << 22) - (1 << 18);
  for (const std::int64_t a : {16, 15}) {
    const Attributes attributes{{"spatial_shape", Ints{side - a, side}}, {"kernel_shape", Ints{3, 3}}};
    CHECK(contains(says("SparseRulebook", 1, attributes), "62 bits") == (a == 15));
  }
}

// The table that the pass share_neighbours requests, for every method of making a rulebook.
TEST_CASE("sparse/rulebook/neighbours") {
  std::mt19937 random(9);
  const auto check = [](const char* kind, const Ints& size, const Ints& kernel, const std::vector<Site>& sites,
                        const Attributes& more = {}, std::int64_t images = 1) {
    for (const std::int64_t empty : {0, 5, 600}) {
      const std::vector<Tensor> inputs{indices_of(sites, static_cast<std::int64_t>(sites.size()) + empty, size.size())};
      Attributes attributes = rulebook_case(kind, size, kernel, inputs[0], images, more).attributes;
      attributes.emplace_back("neighbours", std::int64_t{1});
      const std::size_t outputs = std::string_view(kind) == "submanifold" ? 2 : 3;
      const auto op = make_normalised_op("SparseRulebook", attributes, 1, outputs);
      const auto again = make_normalised_op("SparseRulebook", op->attributes(), 1, outputs);
      CHECK(to_string(again->attributes()) == to_string(op->attributes()));
      CHECK(to_string(op->attributes()).ends_with(" neighbours=1"));
      const std::vector<oracle::Array> arrays{oracle::from_tensor(inputs[0])};
      const std::vector<oracle::Array> exact = oracle::run("SparseRulebook", op->attributes(), arrays).value();
      const Problem problem(op, infos_of(inputs, {}));
      REQUIRE(exact.size() == outputs);
      REQUIRE(problem.outputs().size() == outputs);
      for (const Kernel* kernel_of : kernels_of("SparseRulebook", op_runner().device()))
        for_each_call(op_runner(), problem, *kernel_of, 2, [&](const Call& call) {
          const std::vector<Tensor> made = run_between_guards(op_runner(), call, inputs, call.str());
          for (std::size_t i = 0; i < outputs; ++i)
            CHECK_MESSAGE(oracle::from_tensor(made[i]).values == exact[i].values, kind, ", output ", i);
        });
    }
  };
  const auto drawn = [&](const Ints& size, double fill, std::int64_t images = 1) {
    return draw_sites(random, images, size, fill);
  };
  const Attributes halved{{"strides", Ints{2, 2, 2}}, {"pads", Ints{1, 1, 1, 1, 1, 1}}};
  check("submanifold", {5, 6, 7}, {3, 3, 3}, drawn({5, 6, 7}, 0.3, 2), {}, 2);
  check("submanifold", {5, 6, 7}, {1, 1, 1}, drawn({5, 6, 7}, 0.3));
  check("submanifold", {40, 50}, {5, 3}, drawn({40, 50}, 0.5), {{"dilations", Ints{1, 2}}});
  check("submanifold", {3, 3, 3}, {3, 3, 3}, {});
  check("submanifold", {4, 20, 20}, {3, 3, 3}, drawn({4, 20, 20}, 1.0));
  check("regular", {5, 6, 7}, {3, 3, 3}, drawn({5, 6, 7}, 0.2, 2), halved, 2);
  check("regular", {8, 9}, {2, 4}, drawn({8, 9}, 0.3), {{"strides", Ints{3, 1}}, {"dilations", Ints{2, 2}}});
  check("regular", {6, 6}, {3, 3}, {});
  check("transposed", {3, 4, 5}, {3, 3, 3}, drawn({3, 4, 5}, 0.3), halved);
  // More cells than can be marked.
  const std::int64_t far = std::int64_t{1} << 20;
  check("regular", {8, far, far}, {3, 3, 3}, {{0, 0, 0, 0}, {0, 0, 0, 1}, {0, 7, 5, far - 1}}, halved);
}

// A file may omit the indices of the outputs.
TEST_CASE("sparse/rulebook/without_output_sites") {
  for (const std::int64_t size : {4, 1 << 20})
    for (const char* const kind : {"regular", "transposed"}) {
      OpCase c = rulebook_case(kind, {size, size}, {3, 3}, indices_of({{0, 1, 1}, {0, 2, 3}}, 4, 2), 1,
                               {{"pads", Ints{1, 1, 1, 1}}});
      const std::vector<Tensor> both = run_op(c);
      c.outputs = 1;
      check_op(c);
      const std::vector<Tensor> one = run_op(c);
      REQUIRE(one.size() == 1);
      CHECK(values(one[0]) == values(both[0]));
    }
}

TEST_CASE("sparse/rulebook/errors_of_the_run") {
  const auto error = [](const std::vector<Site>& sites, const Attributes& more = {}, const char* kind = "submanifold") {
    return run_error(
        rulebook_case(kind, {4, 4}, {3, 3}, indices_of(sites, static_cast<std::int64_t>(sites.size()), 2), 2, more));
  };
  CHECK(contains(error({{0, 1, 1}, {0, 1, 1}}), "site 1 (0, 1, 1) occurs twice"));
  CHECK(contains(error({{0, 1, 2}, {0, 1, 1}}), "site 1 (0, 1, 1) comes after a larger one"));
  CHECK(contains(error({{0, 1, 4}}), "site 0 (0, 1, 4) lies outside 2 images of 4x4"));
  CHECK(contains(error({{0, -1, 0}}), "lies outside"));
  CHECK(contains(error({{2, 0, 0}}), "lies outside"));
  CHECK(contains(error({{0, 0, 0}, {-1, 0, 0}, {1, 0, 0}}), "site 2 (1, 0, 0) comes after row 1, which holds no site"));
  CHECK(contains(error({{0, 0, 0}, {0, 0, 1}, {0, 0, 2}}, {{"max_pairs", std::int64_t{1}}}),
                 "2 pairs, more than the bound of 1 (max_pairs)"));
  const Attributes sites3{{"max_sites", std::int64_t{3}}, {"pads", Ints{1, 1, 1, 1}}};
  CHECK(contains(error({{0, 0, 0}}, sites3, "regular"), "4 output sites, more than the bound of 3 (max_sites)"));
  CHECK(contains(error({{0, 1, 1}, {0, 1, 1}}, {}, "regular"), "occurs twice"));
}

TEST_CASE("sparse/rulebook/kernels_strides_and_bounds_that_make_no_sense_are_refused") {
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

/// A device gets grids of many blocks. The CPU is compared with itself on another number of threads: pieces of 4096
/// sites.
const bool on_device = op_runner().device() != DeviceKind::cpu;

/// The runner's kernels must give the bits of the CPU's.
void check_bits(const OpCase& c) {
  const std::shared_ptr<const Op> op = make_op(c);
  const std::vector<InputInfo> infos = infos_of(c.inputs, {});
  const Problem problem(op, infos);
  std::vector<Tensor> wanted;
  for_each_call(cpu_op_runner(), problem, *kernels_of(c.op, DeviceKind::cpu)[0], 1,
                [&](const Call& call) { wanted = run_between_guards(cpu_op_runner(), call, c.inputs, call.str()); });
  int calls = 0;
  for (const Kernel* kernel : kernels_of(c.op, op_runner().device()))
    for_each_call(op_runner(), problem, *kernel, 2, [&](const Call& call) {
      ++calls;
      const std::vector<Tensor> got = run_between_guards(op_runner(), call, c.inputs, call.str());
      REQUIRE(got.size() == wanted.size());
      for (std::size_t i = 0; i < got.size(); ++i)
        CHECK_MESSAGE((got[i].bytes() == 0 || std::memcmp(got[i].data(), wanted[i].data(), got[i].bytes()) == 0),
                      to_string(c.attributes), " output ", i, " is not the CPU's");
    });
  CHECK(calls > 0);
}

}  // namespace

TEST_CASE("sparse/rulebook/scans_have_the_cpus_bits") {
  const std::vector<Site> one = scan_sites(on_device ? 160'000 : 16'000, 1, 3);
  const AttributeList halved{{"strides", Ints{2, 2, 2}}, {"pads", Ints{1, 1, 1, 1, 1, 1}}};
  const AttributeList same{{"pads", Ints{1, 1, 1, 1, 1, 1}}};
  const auto count = static_cast<std::int64_t>(one.size());
  const auto check = [&](const char* kind, std::int64_t images, const Ints& kernel, const AttributeList& more) {
    check_bits(rulebook_case(kind, scan_grid, kernel, indices_of(one, count + 1000, 3), images, more));
  };
  // Eight images have too many cells to mark.
  for (const std::int64_t images : {1, 8}) {
    check("submanifold", images, {3, 3, 3}, {});
    check("regular", images, {3, 3, 3}, halved);
  }
  check("submanifold", 1, {5, 3, 5}, {{"dilations", Ints{1, 2, 3}}});
  check("regular", 1, {3, 1, 1}, {{"strides", Ints{2, 1, 1}}});
  check("transposed", 1, {2, 2, 2}, {{"strides", Ints{2, 2, 2}}, {"max_sites", 8 * count}});
  const std::vector<Site> two = scan_sites(on_device ? 20'000 : 5'000, 2, 4);
  check_bits(rulebook_case("regular", scan_grid, {3, 3, 3}, indices_of(two, static_cast<std::int64_t>(two.size()), 3),
                           2, same));
}

// Half of a plane's cells: the sites that a block looks for are among more rows than it keeps.
TEST_CASE("sparse/rulebook/thin_lines_beside_full_ones") {
  const std::int64_t lines = on_device ? 300 : 30;
  std::vector<Site> sites;
  for (std::int64_t y = 0; y < lines; ++y)
    for (std::int64_t x = 0; x < 2000; ++x)
      if (y % 2 == 0 || x % 97 == 0) sites.push_back({0, y, x});
  const auto count = static_cast<std::int64_t>(sites.size());
  for (const Ints& kernel : {Ints{3, 3}, Ints{5, 5}})
    check_bits(rulebook_case("submanifold", {lines, 2000}, kernel, indices_of(sites, count, 2)));
  check_bits(rulebook_case("regular", {lines, 2000}, {3, 5}, indices_of(sites, count, 2), 1, strides({2, 3})));
}

TEST_CASE("sparse/rulebook/drawn_on_all_devices") {
  std::mt19937 random(random_seed());
  const auto in = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  for (int i = 0; i < 150; ++i) {
    const bool submanifold = in(0, 2) == 0;
    const auto dims = static_cast<std::size_t>(in(2, 3));
    Ints size, kernel, stride, dilation, pads;
    for (std::size_t a = 0; a < dims; ++a) {
      size.push_back(in(1, dims == 3 ? 14 : 60));
      kernel.push_back(submanifold ? 2 * in(0, 2) + 1 : in(1, 5));
      stride.push_back(in(1, 3));
      dilation.push_back(in(1, 3));
    }
    for (std::size_t a = 0; a < 2 * dims; ++a) pads.push_back(in(0, 3));
    AttributeList more{{"dilations", dilation}};
    if (!submanifold) {
      more.emplace_back("strides", stride);
      more.emplace_back("pads", pads);
    }
    const std::int64_t images = in(1, 3);
    const std::vector<Site> sites =
        draw_sites(random, images, size, static_cast<double>(in(0, 10)) / 10, in(-1, images - 1));
    const OpCase c = rulebook_case(
        submanifold     ? "submanifold"
        : in(0, 1) == 0 ? "regular"
                        : "transposed",
        size, kernel, indices_of(sites, static_cast<std::int64_t>(sites.size()) + in(0, 40), dims), images, more);
    if (refusal(c).empty()) check_bits(c);  // else no window fits
  }
}

// On a grid whose outputs have too many cells to mark on a device, too.
TEST_CASE("sparse/rulebook/errors_on_a_large_grid") {
  const std::int64_t far = std::int64_t{1} << 20;
  const auto error = [&](const std::vector<Site>& sites, const AttributeList& more = {}) {
    AttributeList all{{"pads", Ints{1, 1, 1, 1}}};
    all.insert(all.end(), more.begin(), more.end());
    return run_error(rulebook_case("regular", {far, far}, {3, 3},
                                   indices_of(sites, static_cast<std::int64_t>(sites.size()), 2), 2, all));
  };
  CHECK(contains(error({{0, 1, 1}, {0, 1, 1}}), "site 1 (0, 1, 1) occurs twice"));
  CHECK(contains(error({{0, 1, 1}, {-1, 1, 1}, {-1, -1, -1}, {1, 1, 1}, {0, 0, far}}),
                 "site 3 (1, 1, 1) comes after row 1, which holds no site"));
  CHECK(contains(error({{0, 7, 7}, {1, far - 1, far}}), "site 1 (1, 1048575, 1048576) lies outside 2 images"));
  CHECK(contains(error({{0, 7, 7}, {1, 9, 9}}, {{"max_pairs", std::int64_t{17}}}),
                 "18 pairs, more than the bound of 17 (max_pairs)"));
  CHECK(contains(error({{0, 7, 7}, {1, 9, 9}}, {{"max_sites", std::int64_t{17}}}),
                 "18 output sites, more than the bound of 17 (max_sites)"));
}

namespace {

/// The error of a runner's first kernel for a case; empty if it runs.
std::string told_by(const OpRunner& runner, const OpCase& c) {
  const std::shared_ptr<const Op> op = make_op(c);
  const std::vector<InputInfo> infos = infos_of(c.inputs, {});
  const Problem problem(op, infos);
  std::string told;
  for_each_call(runner, problem, *kernels_of(c.op, runner.device())[0], 1, [&](const Call& call) {
    try {
      (void)run_between_guards(runner, call, c.inputs, call.str());
    } catch (const Error& error) {
      told = error.what();
    }
  });
  return told;
}

}  // namespace

// Rows changed at random: all devices report the same first error, and nothing is written outside.
TEST_CASE("sparse/rulebook/wrong_sites_are_told_alike") {
  std::mt19937 random(random_seed());
  const auto in = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  int wrong = 0;
  for (int i = 0; i < 120; ++i) {
    const Ints size = i % 2 == 0 ? Ints{9, 12, 11} : Ints{30, 40};
    const std::vector<Site> sites = draw_sites(random, 2, size, 0.4);
    Tensor indices = indices_of(sites, static_cast<std::int64_t>(sites.size()) + in(0, 300), size.size());
    const auto values = indices.values<std::int32_t>();
    for (std::int64_t change = in(1, 3); change > 0; --change) {
      std::int32_t& value = values[static_cast<std::size_t>(in(0, static_cast<std::int64_t>(values.size()) - 1))];
      const std::int32_t odd[] = {-1, INT32_MIN, INT32_MAX, 0, 5, value + 1};
      value = odd[in(0, 5)];
    }
    const AttributeList grid{{"spatial_shape", size}, {"images", std::int64_t{2}}};
    const Tensor features = random_f32({indices.shape()[0], 3}, 1);
    const Ints kernel(size.size(), 3);
    OpCase cases[] = {
        rulebook_case("submanifold", size, kernel, indices, 2),
        rulebook_case("regular", size, kernel, indices, 2, {{"max_sites", in(100, 4000)}}),
        rulebook_case("transposed", size, kernel, indices, 2, strides(Ints(size.size(), 2))),
        {.op = "SparseSort", .domain = "lenslet", .attributes = grid, .inputs = {indices, features}, .outputs = 2},
        {.op = "SparseToDense", .domain = "lenslet", .attributes = grid, .inputs = {indices, features}}};
    cases[3].attributes.emplace_back("max_sites", static_cast<std::int64_t>(sites.size()) - in(0, 2));
    for (const OpCase& c : cases) {
      const std::string told = told_by(cpu_op_runner(), c);
      CHECK(told_by(op_runner(), c) == told);
      wrong += told.empty() ? 0 : 1;
    }
  }
  CHECK(wrong > 100);
}

TEST_CASE("sparse/rulebook/bits_repeat") {
  const std::vector<Site> sites = scan_sites(50'000, 1, 9);
  const Tensor indices = indices_of(sites, static_cast<std::int64_t>(sites.size()), 3);
  for (const char* const kind : {"submanifold", "regular"}) {
    const OpCase c = rulebook_case(
        kind, scan_grid, {3, 3, 3}, indices, 1,
        std::string_view(kind) == "regular" ? AttributeList{{"strides", Ints{2, 2, 2}}} : AttributeList{});
    const std::vector<Tensor> first = run_op(c);
    // run_op() has one CPU thread, whose order never changes; check_bits() compares several threads.
    for (int i = 0; i < (on_device ? 100 : 2); ++i) {
      const std::vector<Tensor> again = run_op(c);
      for (std::size_t o = 0; o < first.size(); ++o)
        REQUIRE(std::memcmp(again[o].data(), first[o].data(), first[o].bytes()) == 0);
    }
  }
}

}  // namespace lenslet::test
