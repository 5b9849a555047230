#include "ops/pool/pool.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/simd/targets.h"
#include "tests/expect_error.h"
// After targets.h:
#include <hwy/highway.h>

#include "tests/ops/for_each_target.h"
#include "tests/ops/op_harness.h"
#include "tests/ops/op_runner.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

using Ints = std::vector<std::int64_t>;

struct PoolCase {
  Shape x;
  Ints kernel, strides, pads, dilations;
  const char* auto_pad = "NOTSET";
  bool ceil = false;
};

const PoolCase cases[] = {
    {{2, 3, 13, 9}, {3, 3}, {2, 2}, {1, 1, 1, 1}, {}},
    {{1, 16, 15, 15}, {2, 2}, {2, 2}, {}, {}},
    // A window larger than the image, which ceil_mode allows.
    {{1, 2, 1, 2}, {2, 2}, {2, 2}, {}, {}, "NOTSET", true},
    {{2, 3, 6, 1}, {2, 2}, {3, 2}, {}, {}, "NOTSET", true},
    {{1, 2, 2, 3, 1}, {3, 2, 2}, {2, 2, 2}, {}, {}, "NOTSET", true},
    // Pairs of short lines: vectors of each width and single outputs, and columns and lines that no window reads.
    {{2, 3, 14, 14}, {2, 2}, {2, 2}, {}, {}},
    {{1, 2, 5, 67}, {2, 2}, {2, 2}, {}, {}},
    {{1, 2, 4, 7}, {2, 2}, {2, 2}, {}, {}},
    {{1, 17, 7, 61}, {3, 5}, {1, 3}, {0, 2, 1, 1}, {}},
    {{3, 64, 8, 8}, {3, 3}, {2, 2}, {}, {}, "NOTSET", true},
    {{1, 5, 6, 6}, {3, 3}, {2, 2}, {1, 1, 1, 1}, {}, "NOTSET", true},
    {{1, 1, 2, 2}, {3, 3}, {3, 3}, {1, 1, 1, 1}, {}, "NOTSET", true},
    {{2, 13, 9, 7}, {2, 2}, {2, 2}, {}, {}, "SAME_UPPER"},
    {{2, 13, 9, 7}, {4, 4}, {3, 2}, {}, {}, "SAME_LOWER"},
    {{2, 13, 9, 7}, {3, 2}, {2, 2}, {}, {}, "VALID"},
    {{1, 7, 13, 11}, {2, 3}, {1, 2}, {}, {3, 2}},
    {{1, 7, 13, 11}, {3, 3}, {2, 1}, {1, 2, 2, 1}, {2, 2}, "NOTSET", true},
    {{1, 3, 5, 5}, {5, 5}, {1, 1}, {2, 2, 2, 2}, {}},
    {{1, 6, 1, 1}, {2, 2}, {1, 1}, {1, 1, 1, 1}, {}},
    {{1, 8, 112, 112}, {112, 112}, {}, {}, {}},
    {{2, 5, 33}, {3}, {2}, {1, 0}, {}},
    {{2, 5, 33}, {4}, {3}, {}, {2}, "NOTSET", true},
    {{1, 3, 5, 7, 6}, {2, 3, 2}, {1, 2, 2}, {1, 1, 0, 0, 1, 1}, {}},
    {{1, 1, 1, 3}, {1, 2}, {1, 1}, {0, 1, 0, 1}, {1, 2}},
    // A row that begins with a tap inside, after one whose first tap is above the image.
    {{1, 3, 7, 6}, {3, 3}, {1, 1}, {1, 1, 1, 1}, {2, 2}},
    // Lines of several blocks of columns, the second of which reads only zeros.
    {{1, 1, 4, 5000}, {2, 3}, {1, 1}, {2, 1, 2, 1}, {5, 1}},
    // A row that begins with a tap inside, after one whose first tap is above the image.
    {{1, 3, 7, 6}, {3, 3}, {1, 1}, {1, 1, 1, 1}, {2, 2}},
    // Lines of several blocks, each with a tail; strides of two and more; fewer columns than a vector has.
    {{1, 2, 4500}, {3}, {2}, {1, 1}, {}},
    {{1, 1, 3, 2500}, {3, 3}, {1, 1}, {1, 1, 1, 1}, {}},
    {{1, 1, 2, 4100}, {2, 5}, {2, 3}, {0, 4, 0, 4}, {1, 2}, "NOTSET", true},
    {{1, 2, 3, 1500}, {1, 3}, {1, 7}, {}, {1, 600}},
    {{1, 1, 3, 300}, {2, 2}, {1, 40}, {}, {}},
    {{2, 3, 5, 3}, {3, 3}, {1, 2}, {1, 1, 1, 1}, {}},
    // Channels in multiples of sixteen under windows with a large overlap.
    {{2, 32, 21, 13}, {5, 5}, {1, 1}, {2, 2, 2, 2}, {}},
    {{1, 16, 13, 13}, {9, 9}, {1, 1}, {4, 4, 4, 4}, {}},
    {{2, 2, 5, 6, 35}, {3, 3, 3}, {2, 1, 2}, {1, 1, 1, 1, 1, 1}, {1, 2, 1}, "NOTSET", true},
};

AttributeList attributes_of(const PoolCase& c) {
  AttributeList list{{"kernel_shape", c.kernel}, {"auto_pad", std::string(c.auto_pad)}};
  if (!c.strides.empty()) list.emplace_back("strides", c.strides);
  if (!c.pads.empty()) list.emplace_back("pads", c.pads);
  if (!c.dilations.empty()) list.emplace_back("dilations", c.dilations);
  list.emplace_back("ceil_mode", std::int64_t{c.ceil ? 1 : 0});
  return list;
}

}  // namespace

TEST_CASE("pool/maxima_and_their_indices_are_the_oracles") {
  unsigned seed = 1;
  for (const PoolCase& c : cases)
    for (const std::size_t outputs : {std::size_t{1}, std::size_t{2}})
      check_op({.op = "MaxPool",
                .attributes = attributes_of(c),
                .inputs = {random_f32(c.x, seed++, -3)},
                .outputs = outputs});
  for (const PoolCase& c : cases) {
    AttributeList attributes = attributes_of(c);
    attributes.emplace_back("storage_order", std::int64_t{1});
    check_op({.op = "MaxPool", .attributes = attributes, .inputs = {random_f32(c.x, seed++)}, .outputs = 2});
  }
}

TEST_CASE("pool/maxima_of_bytes_are_the_oracles") {
  // Lines of whole vectors of bytes and of some more, in pairs and with strides of two, three and more.
  const PoolCase more[] = {{{2, 3, 9, 128}, {2, 2}, {2, 2}, {}, {}},
                           {{1, 2, 9, 131}, {2, 2}, {2, 2}, {}, {}},
                           {{1, 3, 7, 257}, {3, 3}, {1, 1}, {1, 1, 1, 1}, {}},
                           {{2, 2, 12, 259}, {3, 3}, {2, 2}, {1, 1, 1, 1}, {}},
                           {{1, 2, 12, 400}, {5, 4}, {3, 3}, {2, 1, 2, 2}, {1, 2}},
                           {{1, 2, 6, 390}, {3, 5}, {2, 5}, {1, 2, 1, 2}, {2, 1}, "NOTSET", true}};
  unsigned seed = 900;
  for (const auto list : {std::span<const PoolCase>(cases), std::span<const PoolCase>(more)})
    for (const PoolCase& c : list)
      for (const DType dtype : {DType::u8, DType::i8})
        for (const std::size_t outputs : {std::size_t{1}, std::size_t{2}}) {
          const double low = dtype == DType::u8 ? 0 : -128;
          const OpCase one{.op = "MaxPool",
                           .attributes = attributes_of(c),
                           .inputs = {random_of(dtype, c.x, seed++, low, low + 256)},
                           .outputs = outputs};
          on_every_instruction_set(HWY_TARGETS, [&] { check_op(one); });
        }
}

namespace {

// NaN of both signs among numbers and infinities of both signs: windows contain none, one, several, or only NaN.
Tensor with_nan(const Shape& shape, unsigned seed, double share) {
  constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  Tensor x = random_f32(shape, seed, -1);
  const Tensor draw = random_of(DType::f32, shape, seed + 1, 0, 1), sign = random_f32(shape, seed + 2);
  for (std::size_t i = 0; i < x.values<float>().size(); ++i) {
    const float s = sign.values<float>()[i];
    const double d = static_cast<double>(draw.values<float>()[i]);
    if (d < share) x.values<float>()[i] = std::copysign(nan, s);
    if (d > 0.95) x.values<float>()[i] = std::copysign(inf, s);
  }
  return x;
}

bool same(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }

// The definition, window by window: the first NaN, else the first maximum.
void check_max_pool(const OpCase& c, const PoolProblem& p) {
  const auto x = c.inputs[0].values<float>();
  const PoolAxis &deep = p.axes[0], &high = p.axes[1], &wide = p.axes[2];
  std::vector<float> exact;
  std::vector<std::int64_t> where;
  for (std::int64_t i = 0; i < p.n * p.c * p.out(); ++i) {
    const std::int64_t o = i % p.out();
    const PoolTaps d = deep.taps(o / (high.out * wide.out)), h = high.taps(o / wide.out % high.out),
                   w = wide.taps(o % wide.out);
    float best = -std::numeric_limits<float>::infinity();
    std::int64_t at = -1;
    for (std::int64_t t = 0; t < d.count * h.count * w.count; ++t) {
      const std::int64_t slice = d.first + t / (h.count * w.count) * deep.dilation;
      const std::int64_t line = h.first + t / w.count % h.count * high.dilation;
      const std::int64_t tap =
          i / p.out() * p.in() + (slice * high.in + line) * wide.in + w.first + t % w.count * wide.dilation;
      const float value = x[static_cast<std::size_t>(tap)];
      if (at >= 0 && !(value > best) && !(std::isnan(value) && !std::isnan(best))) continue;
      best = value;
      at = tap;
    }
    exact.push_back(best);
    where.push_back(at);
  }
  const OpRunner& runner = op_runner();
  const std::vector<InputInfo> infos = infos_of(c.inputs, {});
  const auto op = make_op(c);
  const Problem problem(op, infos, infer_types(*op, infos));
  on_every_instruction_set(HWY_TARGETS, [&] {
    for (const Kernel* kernel : kernels_of(op->type(), runner.device()))
      for_each_call(runner, problem, *kernel, 2, [&](const Call& call) {
        const std::vector<Tensor> y = run_between_guards(runner, call, c.inputs, call.str());
        INFO(c.op << " of " << c.inputs[0].shape().str() << ", " << call.str());
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < exact.size(); ++i) {
          if (!same(y[0].values<float>()[i], exact[i])) ++wrong;
          if (y.size() > 1 && where[i] >= 0 && y[1].values<std::int64_t>()[i] != where[i]) ++wrong;
        }
        CHECK(wrong == 0);
      });
  });
}

}  // namespace

TEST_CASE("pool/nan_is_the_maximum") {
  const PoolCase more[] = {{{2, 32, 9, 11}, {2, 2}, {1, 1}, {}, {}},
                           {{2, 17, 9, 11}, {2, 2}, {2, 2}, {}, {}},
                           {{1, 36, 9, 11}, {3, 3}, {1, 1}, {1, 1, 1, 1}, {}},
                           {{1, 12, 30, 13}, {5, 5}, {1, 1}, {2, 2, 2, 2}, {}},  // CUDA: a tile
                           {{1, 5, 30, 13}, {5, 5}, {1, 1}, {2, 2, 2, 2}, {}},   // of single floats
                           {{1, 8, 12, 12}, {4, 4}, {4, 4}, {}, {}},             // any window
                           {{1, 3, 12, 12}, {4, 4}, {4, 4}, {}, {}}};
  unsigned seed = 400;
  for (const auto list : {std::span<const PoolCase>(cases), std::span<const PoolCase>(more)})
    for (const PoolCase& c : list) {
      if (c.x.elems() > 20000) continue;
      const PoolProblem p =
          resolve_pool(c.x, {c.kernel, c.strides, c.dilations, c.pads, parse_auto_pad(c.auto_pad), c.ceil});
      for (const double share : {0.03, 0.9})
        for (const std::size_t outputs : {std::size_t{1}, std::size_t{2}})
          check_max_pool({.op = "MaxPool",
                          .attributes = attributes_of(c),
                          .inputs = {with_nan(c.x, seed += 3, share)},
                          .outputs = outputs},
                         p);
    }
  for (const Shape& x : {Shape{2, 3, 13, 9}, Shape{1, 130, 7, 7}, Shape{1, 8, 41, 43}, Shape{3, 5, 1, 1},
                         Shape{2, 1, 3, 3}, Shape{2, 4, 33}, Shape{1, 3, 4, 5, 6}}) {
    const auto spatial = x.dims().subspan(2);
    const PoolProblem whole = resolve_pool(x, {{spatial.begin(), spatial.end()}, {}, {}, {}});
    for (const double share : {0.005, 0.03, 0.9})
      check_max_pool({.op = "GlobalMaxPool", .inputs = {with_nan(x, seed += 3, share)}}, whole);
  }
}

TEST_CASE("pool/averages_with_and_without_pads_are_the_oracles") {
  unsigned seed = 100;
  for (const PoolCase& c : cases)
    for (const std::int64_t include : {0, 1}) {
      AttributeList attributes = attributes_of(c);
      attributes.emplace_back("count_include_pad", include);
      check_op({.op = "AveragePool",
                .opset = 19,
                .attributes = attributes,
                .inputs = {random_f32(c.x, seed++, 3)},
                .tolerance = 1e-6});
    }
}

TEST_CASE("pool/ceil_mode_counts_as_onnxruntime_does") {
  // The third window would begin in the trailing pad and is dropped.
  const PoolProblem p = resolve_pool({1, 1, 2, 2}, {{3, 3}, {3, 3}, {}, {1, 1, 1, 1}, AutoPad::notset, true});
  CHECK(p.axes[1].out == 1);
  CHECK(resolve_pool({1, 1, 4, 4}, {{3, 3}, {2, 2}, {}, {}, AutoPad::notset, true}).axes[2].out == 2);
  CHECK(resolve_pool({1, 1, 4, 4}, {{3, 3}, {2, 2}, {}, {}, AutoPad::notset, false}).axes[2].out == 1);
}

// The product of such a window's sides exceeds 64 bits in the last cases.
TEST_CASE("pool/windows_far_larger_than_the_image") {
  constexpr std::int64_t side = std::int64_t{1} << 30;
  // All ones, so that every maximum is 1 and every average between 0 and 1.
  const auto check = [](const char* op, Shape x, AttributeList attributes, float low, float high) {
    attributes.emplace_back("auto_pad", std::string("SAME_UPPER"));
    Tensor ones(DType::f32, x);
    for (float& value : ones.values<float>()) value = 1;
    const Tensor y = run_op({.op = op, .opset = 19, .attributes = attributes, .inputs = {ones}})[0];
    for (const float value : y.values<float>()) CHECK((value >= low && value <= high));
  };
  const AttributeList window{{"kernel_shape", Ints{side, side}}}, cube{{"kernel_shape", Ints{side, side, side}}};
  for (const Shape& x : {Shape{1, 1, 4, 4}, Shape{1, 3, 8, 8}, Shape{2, 2, 16, 3}}) {
    check("MaxPool", x, window, 1, 1);
    check("AveragePool", x, window, 1, 1);
  }
  check("AveragePool", {1, 2, 2, 3, 4}, cube, 1, 1);
  AttributeList with_pads = cube;
  with_pads.emplace_back("count_include_pad", std::int64_t{1});
  check("AveragePool", {1, 2, 2, 3, 4}, with_pads, 0, 1e-20F);
}

TEST_CASE("pool/lp_norms_of_every_opset_are_the_oracles") {
  unsigned seed = 500;
  for (const PoolCase& c : cases)
    for (const std::int64_t p : {1, 2, 3}) {
      AttributeList attributes = attributes_of(c);
      attributes.emplace_back("p", p);
      for (const std::int64_t opset : p == 2 ? Ints{2, 11, 18, 22} : Ints{22})
        check_op({.op = "LpPool",
                  .opset = opset,
                  .attributes = attributes,
                  .inputs = {random_f32(c.x, seed++)},
                  .tolerance = 2e-6});
    }
  for (const Shape& x : {Shape{2, 5, 7}, Shape{3, 64, 7, 7}, Shape{1, 17, 112, 5}, Shape{1, 2, 3, 4, 5}})
    for (const std::int64_t p : {1, 2})
      check_op({.op = "GlobalLpPool",
                .opset = 22,
                .attributes = {{"p", p}},
                .inputs = {random_f32(x, seed++)},
                .tolerance = 2e-6});
  // 5 is the norm of (3, -4); the default is 2.
  const Tensor x = Tensor::of<float>({1, 1, 3}, {3, -4, 3});
  CHECK(run_op({.op = "LpPool", .opset = 22, .attributes = {{"kernel_shape", Ints{2}}}, .inputs = {x}})[0]
            .values<float>()[1] == 5);
  CHECK(run_op({.op = "GlobalLpPool", .opset = 22, .inputs = {Tensor::of<float>({1, 1, 2}, {3, -4})}})[0]
            .values<float>()[0] == 5);
}

namespace {

/// MaxPool's outputs for `x`, as inputs of MaxUnpool.
OpCase unpool(const Shape& x, const Ints& kernel, const Ints& strides, const Ints& pads, unsigned seed) {
  const AttributeList attributes{{"kernel_shape", kernel}, {"strides", strides}, {"pads", pads}};
  std::vector<Tensor> pooled =
      run_op({.op = "MaxPool", .opset = 11, .attributes = attributes, .inputs = {random_f32(x, seed)}, .outputs = 2});
  return {
      .op = "MaxUnpool", .opset = 11, .attributes = attributes, .inputs = {std::move(pooled[0]), std::move(pooled[1])}};
}

}  // namespace

TEST_CASE("max_unpool/gives_back_what_was_pooled") {
  unsigned seed = 700;
  for (OpCase c :
       {unpool({2, 3, 12, 8}, {2, 2}, {2, 2}, {0, 0, 0, 0}, 1), unpool({1, 5, 13, 9}, {3, 3}, {2, 2}, {1, 1, 1, 1}, 2),
        unpool({3, 2, 33}, {3}, {3}, {0, 0}, 3), unpool({1, 3, 4, 6, 8}, {2, 3, 2}, {2, 3, 2}, {0, 0, 0, 0, 0, 0}, 4),
        unpool({1, 2, 130, 67}, {2, 3}, {1, 2}, {0, 0, 0, 0}, 5)}) {
    for (const std::int64_t opset : {9, 11, 22}) {
      c.opset = opset;
      check_op(c);
    }
    const Shape unpooled = infer_op(c)[0].shape;
    Ints larger(unpooled.dims().begin(), unpooled.dims().end());
    for (std::size_t i = 2; i < larger.size(); ++i) larger[i] += static_cast<std::int64_t>(i % 2 + 1);
    const auto rank = static_cast<std::int64_t>(larger.size());
    Tensor shape(DType::i64, {rank});
    std::copy(larger.begin(), larger.end(), shape.values<std::int64_t>().begin());
    c.inputs.push_back(std::move(shape));
    c.constant = {2};
    check_op(c);
  }
  // Indices in any order, also those of other planes; of equal ones the last counts.
  Tensor indices(DType::i64, {2, 2, 50});
  for (std::size_t i = 0; i < 200; ++i) indices.values<std::int64_t>()[i] = static_cast<std::int64_t>(i * 77 % 197 * 2);
  check_op({.op = "MaxUnpool",
            .opset = 11,
            .attributes = {{"kernel_shape", Ints{2}}, {"strides", Ints{2}}},
            .inputs = {random_f32({2, 2, 50}, seed), std::move(indices)}});
}

TEST_CASE("max_unpool/indices_and_shapes_that_do_not_fit_are_refused") {
  const auto error = [](const auto& change) {
    OpCase c = unpool({1, 2, 6, 6}, {2, 2}, {2, 2}, {0, 0, 0, 0}, 1);
    change(c);
    return infer_error(c);
  };
  CHECK(error([](OpCase& c) { c.attributes = {}; }) == ErrorKind::invalid_model);
  CHECK(error([](OpCase& c) { c.attributes = {{"kernel_shape", Ints{2}}}; }) == ErrorKind::invalid_model);
  CHECK(error([](OpCase& c) {
          c.attributes = {{"kernel_shape", Ints{2, 2}}, {"pads", Ints{1, 1, 1}}};
        }) == ErrorKind::invalid_model);
  CHECK(error([](OpCase& c) {
          c.attributes = {{"kernel_shape", Ints{2, 2}}, {"pads", Ints{9, 9, 9, 9}}};
        }) == ErrorKind::invalid_model);
  CHECK(error([](OpCase& c) { c.attributes = {{"kernel_shape", Ints{0, 2}}}; }) == ErrorKind::invalid_model);
  CHECK(error([](OpCase& c) { c.inputs[1] = Tensor(DType::i64, {1, 2, 3, 2}); }) == ErrorKind::invalid_model);
  CHECK(error([](OpCase& c) { c.inputs[1] = Tensor(DType::i32, {1, 2, 3, 3}); }) == ErrorKind::unsupported);
  CHECK(error([](OpCase& c) {
          c.inputs.push_back(int64s({1, 2, 5, 6}));
          c.constant = {2};
        }) == ErrorKind::invalid_model);
  CHECK(error([](OpCase& c) { c.inputs.push_back(int64s({1, 2, 6, 6})); }) == ErrorKind::unsupported);
  // Only the CPU reports it.
  if (op_runner().device() != DeviceKind::cpu) return;
  OpCase outside = unpool({1, 2, 6, 6}, {2, 2}, {2, 2}, {0, 0, 0, 0}, 1);
  for (const std::int64_t index : {std::int64_t{-1}, std::int64_t{72}}) {
    outside.inputs[1].values<std::int64_t>()[3] = index;
    CHECK_ERROR(run_op(outside), invalid_argument, "an index is outside the 72 elements that are unpooled");
  }
}

TEST_CASE("pool/global_pools_far_from_zero_keep_double_precision") {
  unsigned seed = 200;
  for (const char* op : {"GlobalAveragePool", "GlobalMaxPool"})
    for (const Shape& x : {Shape{2, 3, 13, 9}, Shape{1, 130, 7, 7}, Shape{1, 8, 112, 112}, Shape{3, 5, 1, 1},
                           Shape{2, 4, 33}, Shape{1, 3, 4, 5, 6}})
      // A mean far from zero: single precision sums of 12544 values would miss this tolerance.
      check_op({.op = op, .inputs = {random_f32(x, seed++, 100)}, .tolerance = 1e-7});
}

TEST_CASE("pool/windows_strides_and_pads_that_do_not_fit_are_refused") {
  const auto message = [](const char* op, Shape x, AttributeList attributes) {
    return refusal({.op = op, .attributes = std::move(attributes), .inputs = {Tensor(DType::f32, x)}});
  };
  const Shape x{1, 3, 8, 8};
  const Ints k3{3, 3};
  CHECK(contains(message("MaxPool", x, {}), "kernel_shape"));
  CHECK(contains(message("MaxPool", x, {{"kernel_shape", Ints{3}}}), "kernel_shape"));
  CHECK(contains(message("MaxPool", x, {{"kernel_shape", Ints{3, 0}}}), "kernel_shape"));
  CHECK(contains(message("MaxPool", x, {{"kernel_shape", k3}, {"strides", Ints{0, 1}}}), "strides"));
  CHECK(contains(message("MaxPool", x, {{"kernel_shape", k3}, {"strides", Ints{1}}}), "strides"));
  CHECK(contains(message("MaxPool", x, {{"kernel_shape", k3}, {"pads", Ints{3, 0, 0, 0}}}), "pads"));
  CHECK(contains(message("MaxPool", x, {{"kernel_shape", k3}, {"pads", Ints{-1, 0, 0, 0}}}), "pads"));
  CHECK(contains(message("MaxPool", x, {{"kernel_shape", Ints{9, 9}}}), "does not fit"));
  CHECK(contains(message("MaxPool", x, {{"kernel_shape", Ints{std::int64_t{1} << 62, 1}}}), "kernel_shape"));
  CHECK(contains(message("MaxPool", x, {{"kernel_shape", k3}, {"auto_pad", std::string("SAME")}}), "auto_pad"));
  CHECK(
      contains(message("AveragePool", x, {{"kernel_shape", k3}, {"storage_order", std::int64_t{1}}}), "storage_order"));
  CHECK(contains(message("LpPool", x, {{"kernel_shape", k3}, {"p", std::int64_t{0}}}), "'p'"));
  CHECK(contains(message("LpPool", x, {{"kernel_shape", k3}, {"count_include_pad", std::int64_t{1}}}),
                 "count_include_pad"));
  CHECK(contains(message("LpPool", x, {}), "kernel_shape"));
  CHECK(contains(message("GlobalLpPool", {1, 3, 8}, {{"p", std::int64_t{3}}}), "supported: 1, 2"));
  CHECK(contains(message("AveragePool", {3, 8}, {{"kernel_shape", Ints{}}}), "kernel_shape"));
  CHECK(contains(message("GlobalAveragePool", {3, 8}, {}), "rank"));
  CHECK(contains(message("GlobalMaxPool", {1, 3, 0, 8}, {}), "empty"));
}

TEST_CASE("col2im") {
  struct Case {
    Ints image, block, windows, strides, dilations, pads;
  };
  const Case folds[] = {
      {{5, 5}, {1, 5}, {5, 1}, {}, {}, {}},
      {{5, 6}, {2, 3}, {4, 4}, {}, {}, {}},
      {{5, 5}, {3, 3}, {2, 2}, {2, 2}, {}, {}},
      {{9, 31}, {2, 3}, {6, 11}, {1, 3}, {4, 1}, {1, 2, 0, 2}},
      {{6, 6}, {2, 2}, {5, 1}, {1, 1}, {1, 5}, {}},
      {{17}, {4}, {16}, {}, {}, {1, 1}},
      {{1, 6}, {1, 1}, {1, 6}, {}, {}, {}},
      {{4, 5, 6}, {1, 1, 5}, {4, 5, 2}, {}, {}, {}},
      {{4, 5, 60}, {2, 3, 2}, {3, 3, 30}, {1, 2, 2}, {2, 1, 1}, {1, 1, 0, 0, 1, 0}},
  };
  const auto ints = [](const Ints& list) {
    return Tensor::of<std::int64_t>(Shape{static_cast<std::int64_t>(list.size())}, std::span(list));
  };
  for (const Case& c : folds) {
    AttributeList attributes;
    for (const auto& [name, list] : {std::pair("strides", c.strides), {"dilations", c.dilations}, {"pads", c.pads}})
      if (!list.empty()) attributes.emplace_back(name, list);
    const std::int64_t taps = Shape(std::span(c.block)).elems(), windows = Shape(std::span(c.windows)).elems();
    check_op({.op = "Col2Im",
              .opset = 18,
              .attributes = attributes,
              .inputs = {random_f32({2, 3 * taps, windows}, 1), ints(c.image), ints(c.block)},
              .constant = {1, 2},
              .tolerance = 2e-6});
  }
  const auto error = [&](const Shape& x, const Ints& image, const Ints& block, std::vector<int> constant = {1, 2}) {
    return infer_error({.op = "Col2Im",
                        .opset = 18,
                        .inputs = {random_f32(x, 1), ints(image), ints(block)},
                        .constant = std::move(constant)});
  };
  CHECK(error({1, 5, 4}, {5, 5}, {1, 5}) == ErrorKind::invalid_model);
  CHECK(error({1, 6, 5}, {5, 5}, {1, 5}) == ErrorKind::invalid_model);
  CHECK(error({1, 5, 5}, {5, 5}, {5}) == ErrorKind::invalid_model);
  CHECK(error({1, 5, 5}, {5, 0}, {1, 5}) == ErrorKind::invalid_model);
  CHECK(error({1, 5, 5}, {5, 5}, {1, 5}, {1}) == ErrorKind::unsupported);
  CHECK_ERROR(make_op({.op = "Col2Im",
                       .opset = 18,
                       .attributes = {{"strides", Ints{0, 1}}},
                       .inputs = {random_f32({1, 5, 5}, 1), ints({5, 5}), ints({1, 5})}}),
              invalid_model, "attribute strides holds 0");
}
