// Operators whose indices, conditions or diagonals select the elements to read or write.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "base/simd/targets.h"

#include <hwy/highway.h>

#include "ops/core/kernel.h"
#include "tests/expect_error.h"
#include "tests/ops/for_each_target.h"
#include "tests/ops/op_harness.h"
#include "tests/ops/op_runner.h"

namespace lenslet::test {

namespace {

using Ints = std::vector<std::int64_t>;

constexpr DType every_size[] = {DType::u8, DType::f16, DType::f32, DType::i64};
constexpr const char* reductions[] = {"add", "mul", "max", "min"};
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

const OpCase gather_elements{.op = "GatherElements", .maybe_constant = {1}};

/// Indices of an axis of `dim`, counted from both ends.
Tensor random_indices(const Shape& shape, std::int64_t dim, unsigned seed, DType dtype = DType::i64) {
  return random_of(dtype, shape, seed, static_cast<double>(-dim), static_cast<double>(dim));
}

/// Tuples [count, dims...] of distinct elements of a tensor of this shape, some counted from the end.
Tensor different_tuples(const Shape& shape, std::int64_t count, unsigned seed) {
  Ints places(static_cast<std::size_t>(shape.elems()));
  for (std::size_t i = 0; i < places.size(); ++i) places[i] = static_cast<std::int64_t>(i);
  std::shuffle(places.begin(), places.end(), std::mt19937(seed));
  Tensor tuples(DType::i64, {count, shape.rank()});
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t place = places[static_cast<std::size_t>(i)];
    for (int axis = shape.rank(); axis-- > 0; place /= shape[axis])
      tuples.values<std::int64_t>()[static_cast<std::size_t>(i * shape.rank() + axis)] =
          place % shape[axis] - (i % 2 == 0 ? shape[axis] : 0);
  }
  return tuples;
}

/// The refusals of CUDA's kernels for an operator on these inputs.
std::string refusal_on_cuda(const OpCase& c) {
  const std::vector<InputInfo> infos = infos_of(c.inputs, c.constant);
  const Problem problem(make_op(c), infos);
  return kernels_of(c.op, DeviceKind::cuda).front()->offer(problem, {.device = reference_gpu()}).refusal;
}

/// The bound kernel's message for a fault found by a device; "" if it checks none.
std::string fault(const OpCase& c) {
  const std::vector<InputInfo> infos = infos_of(c.inputs, c.constant);
  const Problem problem(make_op(c), infos);
  const Kernel& kernel = *kernels_of(c.op, DeviceKind::cpu).front();
  const DeviceProfile device = cpu_profile(1);
  const Offer offer = kernel.offer(problem, {.device = device});
  return kernel.bind({problem, offer.candidates.at(0), device})->fault();
}

}  // namespace

TEST_CASE("indexing/what_is_known_beforehand_is_not_looked_for_in_a_run") {
  const Tensor x = random_f32({3, 5}, 1), tuples = Tensor::of<std::int64_t>({2, 2}, {1, 2, 0, 4}),
               rows = Tensor::of<std::int64_t>({2, 5}, {0, 1, 2, 0, 1, 2, 2, 2, 2, 2}), updates = random_f32({2, 5}, 1),
               whole = Tensor::of<std::int32_t>({2}, {5, 6});
  const AttributeList second{{"axis", std::int64_t{1}}};
  for (const std::vector<int>& known : {std::vector<int>(), {1}}) {
    const auto says = [&](const OpCase& c, const std::string& words) {
      OpCase copy = c;
      copy.constant = known;
      CHECK_MESSAGE(fault(copy) == (known.empty() ? words : ""), c.op);
    };
    says({.op = "Gather", .attributes = second, .inputs = {x, rows}}, "an index is outside axis 1 of [3,5]");
    says({.op = "GatherElements", .inputs = {x, rows}}, "an index is outside axis 0 of [3,5]");
    says({.op = "GatherND", .inputs = {x, tuples}}, "an index is outside axis 0 or 1 of [3,5]");
    says({.op = "ScatterElements", .inputs = {x, rows, updates}}, "an index is outside axis 0 of [3,5]");
    says({.op = "ScatterND", .inputs = {x, tuples, whole.to_dtype(DType::f32)}},
         "an index is outside axis 0 or 1 of [3,5]");
    says({.op = "Div", .inputs = {whole, whole}}, "integer division by zero");
    says({.op = "Mod", .inputs = {whole, whole}}, "integer division by zero");
    says({.op = "Div", .inputs = {x, x}}, "");
    says({.op = "Add", .inputs = {whole, whole}}, "");
  }
  CHECK(fault({.op = "Pow", .inputs = {whole, whole}}) == "integer division by zero");  // a negative power of 0
  CHECK(fault({.op = "Pow", .inputs = {x, x}}).empty());
  CHECK(fault({.op = "Pow", .inputs = {x, Tensor::of<std::int32_t>({1}, {3})}}).empty());
  CHECK(fault({.op = "Pow", .inputs = {whole, Tensor::of<float>({1}, {3})}}).empty());
}

TEST_CASE("gather_elements/axes") {
  const Tensor x = random_f32({3, 5, 4, 6}, 1);
  for (std::int64_t axis = -4; axis < 4; ++axis) {
    const int along = static_cast<int>(axis < 0 ? axis + 4 : axis);
    for (const Shape& shape : {x.shape(), x.shape().with(along, 11), Shape{2, 3, 2, 5}, Shape{1, 1, 1, 1}})
      check_op(with(gather_elements, {x, random_indices(shape, x.shape()[along], 2)}, {{"axis", axis}}));
  }
  // Lines of multiples of four, for every size of element and index.
  for (const DType dtype : every_size)
    for (const DType given : {DType::i32, DType::i64})
      for (const std::int64_t axis : {0, 1, 2})
        check_op(with(gather_elements,
                      {random_of(dtype, {5, 7, 12}, 1, 0, 100),
                       random_indices(Shape{3, 2, 8}.with(static_cast<int>(axis), 4), 5, 3, given)},
                      {{"axis", axis}}));
  for (const DType dtype : every_size)
    check_op({.op = "GatherElements",
              .opset = 11,
              .inputs = {random_of(dtype, {7, 129}, 1, 0, 100), random_indices({5, 129}, 7, 3, DType::i32)},
              .maybe_constant = {1}});
}

// Vectors of indices on each instruction set, and their tails.
TEST_CASE("gather_elements/lines_of_any_length_on_every_instruction_set") {
  for (const DType given : {DType::i32, DType::i64})
    for (const std::int64_t axis : {0, 1})
      for (const std::int64_t length : {1, 7, 16, 33, 100})
        check_op_on_every_instruction_set(
            {.op = "GatherElements",
             .attributes = {{"axis", axis}},
             .inputs = {random_f32({9, 100}, 1), random_indices({9, length}, axis == 0 ? 9 : 100, 2, given)},
             .maybe_constant = {1}});
  // Invalid indices, also with valid low 32 bits.
  const auto check = [] {
    for (const std::int64_t wrong : {std::int64_t{40}, std::int64_t{-41}, std::int64_t{1} << 32,
                                     (std::int64_t{3} << 32) + 39, std::numeric_limits<std::int64_t>::min()})
      for (const std::size_t at : {0U, 15U, 31U, 39U}) {
        Tensor indices = random_indices({1, 40}, 40, 3);
        indices.values<std::int64_t>()[at] = wrong;
        CHECK_THROWS_WITH_AS(
            run_op({.op = "GatherElements", .attributes = {{"axis", 1}}, .inputs = {random_f32({1, 40}, 1), indices}}),
            doctest::Contains("outside axis 1"), Error);
      }
  };
  on_every_instruction_set(HWY_TARGETS, check);
}

TEST_CASE("gather_elements/ranks_and_sizes") {
  check_op(with(gather_elements, {random_f32({9}, 1), random_indices({70001}, 9, 2)}));
  check_op(with(gather_elements,
                {random_f32({2, 3, 1, 2, 3, 2, 5, 2}, 1), random_indices({2, 2, 1, 2, 1, 2, 3, 2}, 5, 2)},
                {{"axis", 6}}));
  check_op({.op = "GatherElements", .inputs = {random_f32({3, 4}, 1), Tensor(DType::i64, {0, 4})}, .constant = {1}});
  check_op({.op = "GatherElements", .inputs = {random_f32({0, 4}, 1), Tensor(DType::i64, {0, 2})}, .constant = {1}});
}

TEST_CASE("gather_nd/depths_and_batches") {
  const OpCase gather_nd{.op = "GatherND", .maybe_constant = {1}};
  const Tensor x = random_f32({2, 3, 4, 8}, 1);
  for (const std::int64_t depth : {1, 2, 3, 4}) {
    // Inside all axes: from -2 to 1.
    check_op(with(gather_nd, {x, random_indices({5, 2, depth}, 2, 2)}));
    check_op(with(gather_nd, {x, random_indices({depth}, 2, 3, DType::i32)}));
  }
  for (const std::int64_t batch : {1, 2})
    for (const std::int64_t depth : {1, 2})
      for (const bool more : {false, true}) {
        Ints dims(x.shape().dims().begin(), x.shape().dims().begin() + batch);
        if (more) dims.push_back(7);
        dims.push_back(depth);
        check_op(with(gather_nd, {x, random_indices(Shape(dims), 3, 4)}, {{"batch_dims", batch}}));
      }
  for (const DType dtype : every_size)
    for (const std::int64_t inner : {1, 5, 16})
      check_op(with(gather_nd, {random_of(dtype, {6, 3, inner}, 1, 0, 100), random_indices({501, 2}, 3, 2)}));
}

TEST_CASE("gather_elements/indices_of_other_shapes_and_outside_are_refused") {
  const Tensor x = random_f32({3, 5}, 1);
  const auto elements = [&](const Tensor& indices) { return OpCase{.op = "GatherElements", .inputs = {x, indices}}; };
  const doctest::Contains outside_it("outside axis 0");
  CHECK_THROWS_WITH_AS(run_op(elements(Tensor::of<std::int64_t>(Shape{1, 2}, {0, 3}))), outside_it, Error);
  CHECK_ERROR(run_op(elements(Tensor::of<std::int64_t>(Shape{1, 1}, {-4}))), invalid_argument,
              "outside axis 0 of [3,5]");
  CHECK(infer_error(elements(int64s({0}))) == ErrorKind::invalid_model);
  CHECK(infer_error(elements(random_indices({1, 6}, 3, 1))) == ErrorKind::invalid_model);
  CHECK(infer_error(elements(random_f32({1, 1}, 1))) == ErrorKind::unsupported);
  CHECK_THROWS_WITH_AS(run_op({.op = "GatherND", .inputs = {x, Tensor::of<std::int64_t>(Shape{2, 2}, {2, 4, 2, -6})}}),
                       doctest::Contains("1 of [3,5]"), Error);
  CHECK(infer_error({.op = "GatherND", .inputs = {x, random_indices({3}, 3, 1)}}) == ErrorKind::invalid_model);
  CHECK(infer_error({.op = "GatherND", .inputs = {x, int64_scalar(0)}}) == ErrorKind::invalid_model);
  CHECK(
      infer_error({.op = "GatherND", .attributes = {{"batch_dims", 1}}, .inputs = {x, random_indices({2, 1}, 3, 1)}}) ==
      ErrorKind::invalid_model);

  const Tensor inside = int64s({2, -3}), outside = int64s({0, 3});
  const Tensor line = random_f32({3}, 1), updates = random_f32({2}, 1);
  for (const char* op : {"GatherElements", "ScatterElements", "Scatter"}) {
    OpCase c{.op = op, .opset = 11, .inputs = {line, inside}};
    if (op[0] == 'S') c.inputs.push_back(updates);
    CHECK(refusal_on_cuda(c).empty());
    c.constant = {1};
    CHECK(refusal_on_cuda(c).empty());
    c.inputs[1] = outside;
    CHECK(refusal_on_cuda(c) == "index 3 is outside axis 0 of [3]");
  }
}

TEST_CASE("scatter_elements/axes") {
  const Tensor x = random_f32({3, 5, 4, 6}, 1);
  for (std::int64_t axis = -4; axis < 4; ++axis) {
    const int along = static_cast<int>(axis < 0 ? axis + 4 : axis);
    for (const Shape& shape : {x.shape(), x.shape().with(along, 11), Shape{2, 3, 2, 5}, Shape{1, 1, 1, 1}})
      check_op({.op = "ScatterElements",
                .attributes = {{"axis", axis}},
                .inputs = {x, random_indices(shape, x.shape()[along], 2), random_f32(shape, 3)},
                .maybe_constant = {1}});
  }
  for (const DType dtype : every_size)
    check_op({.op = "Scatter",
              .opset = 10,
              .inputs = {random_of(dtype, {7, 129}, 1, 0, 100), random_indices({9, 127}, 7, 3, DType::i32),
                         random_of(dtype, {9, 127}, 4, 0, 100)},
              .maybe_constant = {1}});
}

TEST_CASE("scatter_elements/reductions_of_many_in_one") {
  for (const char* reduction : reductions)
    for (const DType dtype :
         {DType::f32, DType::f64, DType::i8, DType::u8, DType::i16, DType::u16, DType::i32, DType::i64})
      for (const std::int64_t axis : {0, 1}) {
        // Few elements: products of some six numbers must fit int8.
        const bool is_float = dtype == DType::f32 || dtype == DType::f64;
        const double low = dtype == DType::u8 || dtype == DType::u16 ? 0 : -2;
        check_op({.op = "ScatterElements",
                  .opset = 18,
                  .attributes = {{"axis", axis}, {"reduction", reduction}},
                  .inputs = {random_of(dtype, {4, 5}, 1, low, 2), random_indices({4, 5}, 4, 2),
                             random_of(dtype, {4, 5}, 3, low, 2)},
                  .maybe_constant = {1},
                  .tolerance = is_float ? 1e-6 : 0});
      }
  check_op({.op = "ScatterElements",
            .opset = 18,
            .attributes = {{"axis", 1}, {"reduction", "add"}},
            .inputs = {random_f32({67, 33}, 1), random_indices({67, 501}, 33, 2), random_f32({67, 501}, 3)},
            .maybe_constant = {1},
            .tolerance = 5e-6});
  check_op({.op = "ScatterElements",
            .opset = 18,
            .attributes = {{"reduction", "max"}},
            .inputs = {random_f32({33, 1067}, 1), random_indices({71, 1067}, 33, 2), random_f32({71, 1067}, 3)},
            .maybe_constant = {1}});
}

TEST_CASE("scatter_nd/depths") {
  const OpCase scatter_nd{.op = "ScatterND", .maybe_constant = {1}};
  const Tensor x = random_f32({4, 3, 5, 8}, 1);
  for (const std::int64_t depth : {1, 2, 3, 4}) {
    Ints named(x.shape().dims().begin(), x.shape().dims().begin() + depth), dims{3};
    dims.insert(dims.end(), x.shape().dims().begin() + depth, x.shape().dims().end());
    check_op(with(scatter_nd, {x, different_tuples(Shape(named), 3, 2), random_f32(Shape(dims), 3)}));
    // Some tuples are repeated: the last one counts.
    dims[0] = 40;
    dims.insert(dims.begin(), 2);
    check_op(with(scatter_nd, {x, random_indices({2, 40, depth}, 3, 4), random_f32(Shape(dims), 5)}));
  }
  for (const DType dtype : every_size)
    for (const std::int64_t inner : {1, 16, 5000})
      check_op(with(scatter_nd, {random_of(dtype, {40, inner}, 1, 0, 100), random_indices({33, 1}, 40, 2, DType::i32),
                                 random_of(dtype, {33, inner}, 3, 0, 100)}));
  // Several pieces along tuples and along slices.
  check_op(with(scatter_nd, {random_f32({200, 1030}, 1), different_tuples({200}, 190, 2), random_f32({190, 1030}, 3)}));
  check_op(
      with(scatter_nd, {random_f32({300, 300}, 1), different_tuples({300, 300}, 70000, 2), random_f32({70000}, 3)}));
  check_op(with(scatter_nd, {x, Tensor(DType::i64, {0, 2}), random_f32({0, 5, 8}, 3)}));
}

TEST_CASE("scatter_nd/reductions") {
  const Tensor x = random_f32({6, 3, 7}, 1);
  for (const char* reduction : reductions)
    for (const std::int64_t depth : {1, 2, 3}) {
      Ints dims{20};
      dims.insert(dims.end(), x.shape().dims().begin() + depth, x.shape().dims().end());
      check_op({.op = "ScatterND",
                .opset = 18,
                .attributes = {{"reduction", reduction}},
                .inputs = {x, random_indices({20, depth}, 3, 2), random_f32(Shape(dims), 3)},
                .maybe_constant = {1},
                .tolerance = 2e-6});
    }
}

TEST_CASE("scatter/nan_and_integers_that_wrap") {
  const Tensor x = Tensor::of<float>(Shape{4}, {nan, 1, 2, 3}), to = int64s({0, 1, 2});
  for (const char* reduction : reductions)
    check_op({.op = "ScatterElements",
              .opset = 18,
              .attributes = {{"reduction", reduction}},
              .inputs = {x, to, Tensor::of<float>(Shape{3}, {5, nan, 0.5F})},
              .maybe_constant = {1}});
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  const auto added =
      run_op({.op = "ScatterND",
              .opset = 18,
              .attributes = {{"reduction", "add"}},
              .inputs = {int64s({most, 1}), Tensor::of<std::int64_t>(Shape{2, 1}, {0, 0}), int64s({1, 1})},
              .constant = {1}});
  CHECK(added[0].values<std::int64_t>()[0] == std::numeric_limits<std::int64_t>::min() + 1);
}

TEST_CASE("scatter/indices_outside_and_unknown_reductions_are_refused") {
  const Tensor x = random_f32({3, 5}, 1), updates = random_f32({1, 2}, 2);
  const Tensor inside = Tensor::of<std::int64_t>(Shape{1, 2}, {0, 2});
  const auto elements = [&](const Tensor& indices, const Tensor& values, AttributeList attributes = {}) {
    return OpCase{.op = "ScatterElements", .opset = 18, .attributes = attributes, .inputs = {x, indices, values}};
  };
  CHECK_ERROR(run_op(elements(Tensor::of<std::int64_t>(Shape{1, 2}, {0, 3}), updates)), invalid_argument,
              "is outside axis");
  CHECK(infer_error(elements(inside, random_f32({2, 1}, 1))) == ErrorKind::invalid_model);
  CHECK(infer_error(elements(inside, int64s({1, 2}))) == ErrorKind::invalid_model);
  CHECK_ERROR(make_op(elements(inside, updates, {{"reduction", "mean"}})), invalid_model,
              "attribute reduction is \"mean\"");
  OpCase old = elements(inside, updates, {{"reduction", "add"}});
  old.opset = 15;
  CHECK_ERROR(make_op(old), unsupported, "attribute 'reduction' is not supported");
  CHECK(infer_error({.op = "ScatterND", .inputs = {x, inside, random_f32({2}, 1)}}) == ErrorKind::invalid_model);
  const Tensor half = random_of(DType::f16, {3}, 1, 0, 1);
  CHECK(refusal_on_cuda({.op = "ScatterElements",
                         .opset = 18,
                         .attributes = {{"reduction", "add"}},
                         .inputs = {half, int64s({0, 1, 2}), half},
                         .constant = {1}})
            .find("reduction add of float16") == 0);
}

TEST_CASE("one_hot/axes_and_types") {
  const OpCase one_hot{.op = "OneHot", .constant = {1}};
  for (const std::int64_t axis : {-1, 0, 1, 2, -3})
    check_op({.op = "OneHot",
              .attributes = {{"axis", axis}},
              .inputs = {random_indices({7, 33}, 8, 1), int64_scalar(5), random_f32({2}, 2)},
              .constant = {1},
              .maybe_constant = {2}});
  for (const DType dtype : {DType::f32, DType::f64, DType::i8, DType::i16, DType::i32})
    check_op(with(one_hot, {random_of(dtype, {300}, 1, -9, 9), random_f32({}, 7, 6, 0), int64s({-3, 4})}));
  for (const DType dtype : {DType::u8, DType::u16})
    check_op(with(one_hot, {random_of(dtype, {300}, 1, 0, 9), int64s({6}), random_f32({2}, 2)}, {{"axis", 0}}));
  for (const DType dtype : every_size)
    check_op(with(one_hot, {random_indices({3, 1001}, 3, 1), int64_scalar(3), random_of(dtype, {2}, 2, 0, 100)}));
  check_op(with(one_hot, {int64_scalar(1), int64_scalar(3), random_f32({2}, 2)}));
  check_op(with(one_hot, {int64s({0, 1}), int64_scalar(0), random_f32({2}, 2)}));
  constexpr std::int64_t far = std::numeric_limits<std::int64_t>::max(), near = -far - 1;
  check_op(with(one_hot, {int64s({far, near, 0}), int64_scalar(3), random_f32({2}, 2)}));
}

TEST_CASE("one_hot/depths_that_are_negative_computed_or_huge_are_refused") {
  const Tensor indices = int64s({0, 1}), values = random_f32({2}, 1);
  const auto error = [&](const Tensor& depth, const Tensor& v) {
    return infer_error({.op = "OneHot", .inputs = {indices, depth, v}, .constant = {1}});
  };
  CHECK(error(int64_scalar(-1), values) == ErrorKind::invalid_model);
  CHECK(error(int64s({1, 2}), values) == ErrorKind::invalid_model);
  CHECK(error(Tensor::of<float>(Shape{}, {nan}), values) == ErrorKind::invalid_model);
  CHECK(error(int64_scalar(std::int64_t{1} << 40), values) == ErrorKind::limit);
  CHECK(error(int64_scalar(3), random_f32({3}, 1)) == ErrorKind::invalid_model);
  CHECK(infer_error({.op = "OneHot", .inputs = {indices, int64_scalar(3), values}}) == ErrorKind::unsupported);
}

TEST_CASE("compress") {
  const OpCase compress{.op = "Compress", .constant = {1}};
  const auto condition = [](std::initializer_list<bool> values) {
    Tensor tensor(DType::boolean, {static_cast<std::int64_t>(values.size())});
    std::ranges::copy(values, tensor.values<bool>().begin());
    return tensor;
  };
  const Tensor x = random_f32({2, 5, 3}, 1);
  check_op(with(compress, {x, condition({true, false, true, true, false, false, true})}));
  for (const std::int64_t axis : {1, -2})
    check_op(with(compress, {x, condition({false, true, true, false, true})}, {{"axis", axis}}));
  check_op(with(compress, {x, condition({true, false})}, {{"axis", 2}}));
  check_op(with(compress, {x, condition({false, false})}, {{"axis", 0}}));
  for (const DType dtype : every_size)
    check_op(
        with(compress, {random_of(dtype, {70, 30}, 1, 0, 9), random_of(DType::boolean, {70}, 2, 0, 2)}, {{"axis", 0}}));
  Tensor halves(DType::boolean, {40000});  // runs of many elements, and one for each of two threads
  for (const std::size_t run : {1U, 20000U}) {
    for (std::size_t i = 0; i < 40000; ++i) halves.values<bool>()[i] = i / run % 2 == 1;
    check_op(with(compress, {random_f32({200, 200}, 3), halves}));
    check_op(with(compress, {random_f32({2, 40000}, 3), halves}, {{"axis", 1}}));
  }
  CHECK(infer_error({.op = "Compress", .inputs = {x, condition({true})}}) == ErrorKind::unsupported);
  CHECK(infer_error(with(compress, {x, condition({true, false, true})}, {{"axis", 0}})) == ErrorKind::invalid_model);
  CHECK(infer_error(with(compress, {x, int64s({1})})) == ErrorKind::unsupported);
}

TEST_CASE("trilu") {
  const OpCase trilu{.op = "Trilu", .opset = 14};
  constexpr std::int64_t far = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t upper : {0, 1}) {
    const AttributeList attributes{{"upper", upper}};
    for (const Shape& shape : {Shape{4, 5}, Shape{5, 4}, Shape{3, 1, 5}, Shape{2, 3, 7, 7}, Shape{3, 0, 5}}) {
      check_op(with(trilu, {random_f32(shape, 1)}, attributes));
      for (const std::int64_t k :
           {-far - 1, -far, std::int64_t{-4}, std::int64_t{-1}, std::int64_t{0}, std::int64_t{2}, std::int64_t{6}, far})
        check_op({.op = "Trilu",
                  .opset = 14,
                  .attributes = attributes,
                  .inputs = {random_f32(shape, 1), int64_scalar(k)},
                  .constant = {1}});
    }
    for (const DType dtype : every_size) check_op(with(trilu, {random_of(dtype, {99, 301}, 1, 1, 9)}, attributes));
  }
  CHECK(infer_error(with(trilu, {random_f32({3}, 1)})) == ErrorKind::unsupported);
  CHECK(infer_error(with(trilu, {random_f32({3, 3}, 1), int64_scalar(1)})) == ErrorKind::unsupported);
}

TEST_CASE("eye_like") {
  for (const std::int64_t k : {-7, -1, 0, 2, 9})
    check_op({.op = "EyeLike", .attributes = {{"k", k}}, .inputs = {random_f32({5, 7}, 1)}});
  constexpr std::int64_t every_number[] = {1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 16};  // ONNX's, of supported types
  for (const std::int64_t dtype : every_number)
    check_op({.op = "EyeLike", .attributes = {{"dtype", dtype}}, .inputs = {random_of(DType::i32, {6, 4}, 1, 0, 9)}});
  check_op({.op = "EyeLike", .inputs = {random_of(DType::boolean, {3, 3}, 1, 0, 2)}});
  CHECK(infer_error({.op = "EyeLike", .inputs = {random_f32({3}, 1)}}) == ErrorKind::unsupported);
}

TEST_CASE("reverse_sequence") {
  const OpCase reverse_sequence{.op = "ReverseSequence", .constant = {1}};
  for (const std::int64_t batch : {0, 1})
    for (const DType dtype : every_size) {
      const Shape shape = batch == 0 ? Shape{4, 7, 3, 5} : Shape{7, 4, 3, 5};
      check_op(with(reverse_sequence, {random_of(dtype, shape, 1, 0, 100), int64s({7, 0, 1, 4})},
                    {{"batch_axis", batch}, {"time_axis", 1 - batch}}));
    }
  check_op(with(reverse_sequence, {random_f32({9, 2}, 1), int64s({9, 2})}));
  const auto error = [](const Tensor& lengths, bool known = true) {
    return infer_error({.op = "ReverseSequence",
                        .inputs = {random_f32({9, 2}, 1), lengths},
                        .constant = known ? std::vector<int>{1} : std::vector<int>{}});
  };
  CHECK(error(int64s({1})) == ErrorKind::invalid_model);
  CHECK(error(int64s({1, 10})) == ErrorKind::invalid_model);
  CHECK(error(int64s({-1, 1})) == ErrorKind::invalid_model);
  CHECK(error(int64s({1, 1}), false) == ErrorKind::unsupported);
  CHECK_ERROR(make_op({.op = "ReverseSequence",
                       .attributes = {{"batch_axis", 0}},
                       .inputs = {random_f32({9, 2}, 1), int64s({1, 1})}}),
              invalid_model, "batch_axis=0 time_axis=0: one must be 0, the other 1");
}

TEST_CASE("center_crop_pad") {
  const OpCase center_crop_pad{.op = "CenterCropPad", .opset = 18, .constant = {1}};
  const Tensor x = random_f32({3, 20, 9, 4}, 1);
  check_op(with(center_crop_pad, {x, int64s({3, 11, 14, 4})}));
  check_op(with(center_crop_pad, {x, int64s({4, 21, 2, 1})}));
  check_op(with(center_crop_pad, {x, int64s({3, 20, 9, 4})}));
  check_op(with(center_crop_pad, {x, int64s({0, 20, 9, 4})}));
  for (const DType dtype : every_size)
    check_op(with(center_crop_pad, {random_of(dtype, {2, 7, 8}, 1, 0, 9), int64s({5, 10})}, {{"axes", Ints{-1, 1}}}));
  const auto error = [&](const Tensor& sizes, const Ints& axes, bool known = true) {
    return infer_error({.op = "CenterCropPad",
                        .opset = 18,
                        .attributes = {{"axes", axes}},
                        .inputs = {x, sizes},
                        .constant = known ? std::vector<int>{1} : std::vector<int>{}});
  };
  CHECK(error(int64s({1, 2}), {1}) == ErrorKind::invalid_model);
  CHECK(error(int64s({1, 2}), {1, -3}) == ErrorKind::invalid_model);
  CHECK(error(int64s({-1}), {1}) == ErrorKind::invalid_model);
  CHECK(error(int64s({1}), {1}, false) == ErrorKind::unsupported);
}

TEST_CASE("non_zero/places_of_what_is_not_0_are_the_oracles") {
  for (const DType dtype :
       {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i8, DType::u8, DType::i32, DType::i64, DType::boolean})
    for (const Shape& shape : {Shape{}, Shape{7}, Shape{3, 0, 2}, Shape{4, 5, 6}, Shape{2, 1, 3, 1, 5}})
      check_op({.op = "NonZero", .inputs = {random_of(dtype, shape, 1, 0, 2)}, .constant = {0}});
  const Tensor signs = Tensor::of<float>(Shape{4}, {-0.0F, nan, 0.0F, -1e-45F});
  CHECK(run_op({.op = "NonZero", .inputs = {signs}, .constant = {0}})[0].values<std::int64_t>()[0] == 1);
  CHECK(infer_error({.op = "NonZero", .inputs = {signs}}) == ErrorKind::unsupported);
}

}  // namespace lenslet::test
